"""The error a person sees: one sentence that names the field, the value and the fix."""


class InputError(ValueError):
    """Input from outside (a file, a flag, an option) that cannot be used.

    The message is one line, complete on its own: the command line prints it without a traceback
    and exits with code 2.
    """
