"""What a caller of this package is expected to meet. Before this file: nothing. After it: ``admin`` and ``reader``."""

from schemas.errors import TokentrailError


class KafkaError(TokentrailError):
    """Kafka cannot be used as asked; the message says why and what to do."""


def unreachable(bootstrap_servers: str, error: BaseException) -> KafkaError:
    """The error for a broker that does not answer."""
    return KafkaError(
        f"No Kafka answers at {bootstrap_servers} ({type(error).__name__}). Start one with `tokentrail up`, or point "
        "TOKENTRAIL_KAFKA__BOOTSTRAP_SERVERS at a running one."
    )
