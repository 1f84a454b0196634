"""Which tier a request runs at: what its header wishes, lowered to what its caller may have."""

from dataclasses import dataclass

from starlette.datastructures import Headers

from cohabit.common.v1 import common_pb2 as pb
from edge.errors import bad_field

HEADER = "x-cohabit-tier"

TIERS: dict[str, "pb.Tier.ValueType"] = {
    "background": pb.TIER_BACKGROUND,
    "free": pb.TIER_FREE,
    "sub": pb.TIER_SUB,
    "paid": pb.TIER_PAID,
}


@dataclass(frozen=True, slots=True)
class TierRule:
    """The tier of a request that names none, and the most that a caller without a key gets."""

    default: "pb.Tier.ValueType"
    ceiling: "pb.Tier.ValueType"

    def of(
        self, headers: Headers, own_ceiling: "pb.Tier.ValueType | None" = None
    ) -> "pb.Tier.ValueType":
        """The tier of a request with these headers. Raises Fault for an unknown one.

        `own_ceiling`: that of the caller's key, where it has one.
        """
        ceiling = self.ceiling if own_ceiling is None else own_ceiling
        wish = headers.get(HEADER)
        if wish is None:
            return min(self.default, ceiling)
        if wish not in TIERS:
            known = ", ".join(TIERS)
            raise bad_field(HEADER, f"The header {HEADER} must be one of {known}.")
        return min(TIERS[wish], ceiling)
