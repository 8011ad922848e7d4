"""Argument checks shared by the compiled parts: the wrong type raises TypeError, the wrong value ValueError.

Every message names the argument, the value and what would be right. Nothing here changes state, so a
caller that checks first leaves nothing half done.
"""

from libc.math cimport isfinite

cdef extern from "Python.h":
    const char* PyUnicode_AsUTF8AndSize(object text, Py_ssize_t* size) except NULL
    object PyUnicode_FromObject(object text)

cdef Py_ssize_t LABEL_BYTES = 512
cdef Py_ssize_t SHOWN = 60
cdef long long MOST_SLACK = 1_000_000


cdef str shown(object value):
    """The value for a message: its repr, cut short. An int of thousands of digits has no repr by default."""
    cdef str text
    if isinstance(value, int) and not -(1 << 200) < value < (1 << 200):
        return "an int of {} bits".format(value.bit_length())
    if isinstance(value, str) and len(value) > SHOWN:
        value = value[:SHOWN] + "..."
    text = repr(value)
    return text if len(text) <= 4 * SHOWN else text[:4 * SHOWN] + "..."


cpdef str check_label(object value, str name):
    """The label as an exact ``str``: not empty, at most 512 bytes of UTF-8, no lone surrogates."""
    cdef Py_ssize_t size = 0
    if not isinstance(value, str):
        raise TypeError(f"{name} must be a str, got {shown(value)} of type {type(value).__name__}")
    try:
        PyUnicode_AsUTF8AndSize(value, &size)
    except UnicodeEncodeError:
        raise ValueError(
            f"{name} must be text that UTF-8 can encode, got {shown(value)} with a lone surrogate"
        ) from None
    if size == 0:
        raise ValueError(f"{name} must not be empty, got ''")
    if size > LABEL_BYTES:
        raise ValueError(
            f"{name} must be at most {LABEL_BYTES} bytes of UTF-8, got {size} bytes: {shown(value)}"
        )
    if type(value) is str:
        return <str>value
    return PyUnicode_FromObject(value)  # a subclass may compare and hash as it likes


cpdef list check_several(object value, str name, str what):
    """The items of an iterable. A str or bytes is none: its characters are never what is meant."""
    items = None
    if not isinstance(value, (str, bytes)):
        try:
            items = iter(value)
        except TypeError:
            pass
    if items is None:
        raise TypeError(f"{name} must be {what}, got {shown(value)} of type {type(value).__name__}")
    return list(items)


cpdef double check_finite(object value, str name) except? -1.0:
    """The int or float as a double; NaN, infinities and ints beyond the doubles are refused."""
    cdef double number
    if type(value) is float:
        number = <double>value
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        try:
            number = float(value)
        except OverflowError:
            raise ValueError(f"{name} must be a finite number, got {shown(value)}") from None
    else:
        raise TypeError(
            f"{name} must be an int or a float, got {shown(value)} of type {type(value).__name__}"
        )
    if not isfinite(number):
        raise ValueError(f"{name} must be a finite number, got {shown(value)}")
    return number


cpdef double check_positive(object value, str name) except? -1.0:
    """The int or float as a double, finite and above zero."""
    cdef double number = check_finite(value, name)
    if not number > 0.0:
        raise ValueError(f"{name} must be above 0, got {shown(value)}")
    return number


cpdef long long check_count(object value, str name, long long minimum) except? -1:
    """The int (no bool, no float) from ``minimum`` to 2**63 - 1."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{name} must be an int, got {shown(value)} of type {type(value).__name__}")
    if value < minimum:
        raise ValueError(f"{name} must be at least {minimum}, got {shown(value)}")
    if value > 0x7FFFFFFFFFFFFFFF:
        raise ValueError(f"{name} must be at most 2**63 - 1, got {shown(value)}")
    return value


cpdef long long check_slack(object value) except? -1:
    """Requests that a worker may have beyond its share: a count of at most a million."""
    if check_count(value, "slack", 0) > MOST_SLACK:
        raise ValueError(f"slack must be at most {MOST_SLACK}, got {shown(value)}")
    return value
