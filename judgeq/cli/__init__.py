"""The command line: `app` is the `judgeq` command. Only this package prints or ends the process."""

from judgeq.cli.app import EXIT_CODES as EXIT_CODES
from judgeq.cli.app import app as app
