"""`python -m judgeq`."""

from judgeq.cli import main

if __name__ == "__main__":
    main()
