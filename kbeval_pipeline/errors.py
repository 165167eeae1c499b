"""The one error that a user is meant to read."""


class UserError(Exception):
    """A mistake in the user's input or environment.

    The message says what was wrong, where, and what to do about it, and never holds a secret.
    The command line prints it without a stack trace and exits with code 2.
    """
