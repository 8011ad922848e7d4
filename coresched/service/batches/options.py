"""What a batch goes by: the options of a call, checked, as a batch keeps and shows them."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from grpc import StatusCode

from coresched.core.checks import check_count, check_positive
from coresched.service.batches.facts import AdmissionPolicy, BatchOpened, Policy
from coresched.service.refusal import RefusedError, refuse_argument
from coresched.v1 import batches_pb2 as pb

_POLICIES: dict[int, Policy] = {
    pb.ENVIRONMENT_POLICY_UNSPECIFIED: "caas",
    pb.ENVIRONMENT_POLICY_CAAS: "caas",
    pb.ENVIRONMENT_POLICY_FCFS: "fcfs",
}
_MESSAGES = {"caas": pb.ENVIRONMENT_POLICY_CAAS, "fcfs": pb.ENVIRONMENT_POLICY_FCFS}
_ADMISSION: dict[int, AdmissionPolicy] = {
    pb.ADMISSION_POLICY_UNSPECIFIED: "submission",
    pb.ADMISSION_POLICY_SUBMISSION: "submission",
    pb.ADMISSION_POLICY_LONGEST_EXPECTED_FIRST: "longest-expected-first",
}
_ADMISSION_MESSAGES = {
    "submission": pb.ADMISSION_POLICY_SUBMISSION,
    "longest-expected-first": pb.ADMISSION_POLICY_LONGEST_EXPECTED_FIRST,
}
_NARROWEST_S = 1e-9  # the times of any run are a finite number of these


@dataclass(frozen=True, slots=True)
class Options:
    """C_S; C_E or None for no cap; the environment queue's policy, with B and D_I in seconds; C_R or None.

    And the order of admission.
    """

    sample_concurrency: int
    environment_concurrency: int | None
    policy: Policy
    band_s: float
    bucket_s: float
    resident_concurrency: int | None
    admission_policy: AdmissionPolicy

    @classmethod
    def asked(cls, options: pb.BatchOptions) -> Options:
        """The options of a call. Raises RefusedError, INVALID_ARGUMENT, for a number out of range."""
        environments = residents = None
        band_s, bucket_s = 30.0, 1.0
        try:
            check_count(options.sample_concurrency, "sample_concurrency", 1)
            if options.HasField("environment_concurrency"):
                environments = check_count(options.environment_concurrency, "environment_concurrency", 1)
            if options.HasField("resident_concurrency"):
                residents = check_count(options.resident_concurrency, "resident_concurrency", 1)
            if options.HasField("band_s"):
                band_s = check_positive(options.band_s, "band_s")
            if options.HasField("bucket_s"):
                bucket_s = check_positive(options.bucket_s, "bucket_s")
        except ValueError as error:
            refuse_argument(str(error).partition(" ")[0], error)
        for name, width in (("band_s", band_s), ("bucket_s", bucket_s)):
            if width < _NARROWEST_S:
                raise RefusedError(
                    StatusCode.INVALID_ARGUMENT,
                    name,
                    f"{name} must be at least {_NARROWEST_S:g}, got {width:g}",
                )
        policy = _POLICIES.get(options.environment_policy)
        if policy is None:
            raise RefusedError(
                StatusCode.INVALID_ARGUMENT,
                "environment_policy",
                f"environment_policy must be 1 (CAAS) or 2 (FCFS), got {options.environment_policy}",
            )
        admission = _ADMISSION.get(options.admission_policy)
        if admission is None:
            raise RefusedError(
                StatusCode.INVALID_ARGUMENT,
                "admission_policy",
                "admission_policy must be 1 (SUBMISSION) or 2 (LONGEST_EXPECTED_FIRST), got "
                f"{options.admission_policy}",
            )
        return cls(options.sample_concurrency, environments, policy, band_s, bucket_s, residents, admission)

    @classmethod
    def of(cls, fact: BatchOpened) -> Options:
        return cls(
            fact.sample_concurrency,
            fact.environment_concurrency,
            fact.policy,
            fact.band_s,
            fact.bucket_s,
            fact.resident_concurrency,
            fact.admission_policy,
        )

    def difference(self, other: Options) -> str:
        """The first option in which the other differs, in words; empty if there is none."""
        mine, others = asdict(self), asdict(other)
        for name, value in mine.items():
            if value != others[name]:
                return f"{name} {value}, not {others[name]}"
        return ""

    def message(self) -> pb.BatchOptions:
        return pb.BatchOptions(
            sample_concurrency=self.sample_concurrency,
            environment_concurrency=self.environment_concurrency,
            environment_policy=_MESSAGES[self.policy],
            band_s=self.band_s,
            bucket_s=self.bucket_s,
            resident_concurrency=self.resident_concurrency,
            admission_policy=_ADMISSION_MESSAGES[self.admission_policy],
        )
