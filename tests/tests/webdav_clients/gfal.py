"""gfal2's calls, as the arguments say; every failure is an exception."""
import errno
import sys
import time

import gfal2

LIMIT_S = 60


def staged(context, urls, token):
    """Polls until every file has come to an end; their errors."""
    until = time.monotonic() + LIMIT_S
    while time.monotonic() < until:
        errors = context.bring_online_poll(urls, token)
        if not any(error and error.code == errno.EAGAIN for error in errors):
            return errors
        time.sleep(0.2)
    sys.exit("the files did not come")


def main(what, *arguments):
    context = gfal2.creat_context()
    if what == "copy":
        source, target = arguments
        parameters = context.transfer_parameters()
        parameters.overwrite = True
        parameters.set_checksum(gfal2.checksum_mode.both, "ADLER32", "")
        context.filecopy(parameters, source, target)
    elif what == "stat":
        print(context.stat(arguments[0]).st_size)
    elif what == "checksum":
        print(context.checksum(arguments[0], arguments[1]))
    elif what == "list":
        print("\n".join(sorted(context.listdir(arguments[0]))))
    elif what == "mkdir":
        context.mkdir(arguments[0], 0o755)
    elif what == "rename":
        context.rename(*arguments)
    elif what == "unlink":
        context.unlink(arguments[0])
    elif what == "rmdir":
        context.rmdir(arguments[0])
    elif what == "locality":
        print(context.getxattr(arguments[0], "user.status"))
    elif what == "stage":
        urls = list(arguments)
        errors, token = context.bring_online(urls, 3600, 3600, True)
        refused = [error for error in errors if error and error.code != errno.EAGAIN]
        assert not refused, refused
        print(token)
        for url, error in zip(urls, staged(context, urls, token)):
            print(url, error.message if error else "ONLINE")
    elif what == "archived":
        for url, error in zip(arguments, context.archive_poll(list(arguments))):
            print(url, error.message if error else "ARCHIVED")
    elif what == "release":
        token, *urls = arguments
        errors = context.release(urls, token)
        assert not any(errors), errors
    else:
        sys.exit(f"there is no call {what}")


main(*sys.argv[1:])
