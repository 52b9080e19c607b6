//! Penstock's gateway: doors, sessions, planning and HSM services; holds no file data.
