//! `penstock`: see [`site::program`].

fn main() -> std::process::ExitCode {
    site::program::main()
}
