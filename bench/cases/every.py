"""Every case of `python -m bench overhead`, in the order of its report."""

from collections.abc import Iterator

from bench.cases import Case, Scale
from bench.cases.caas import caas_cases
from bench.cases.lbch import lbch_cases
from bench.cases.passes import pass_cases
from bench.cases.residency import residency_cases
from bench.cases.rp import rp_cases


def every_case(scale: Scale) -> Iterator[Case]:
    """Each is made when it is asked for, so that the largest do not stand in memory together."""
    yield from lbch_cases(scale)
    yield from rp_cases(scale)
    yield from pass_cases(scale)
    yield from residency_cases(scale)
    yield from caas_cases(scale)
