"""What an attempt is sent, and what its ``attempt_start`` says of it: each strategy with the fields of its own.

=====================  ======================================================================================
retry                  retry_count, retry_reason, backoff_ms, same_prompt_hash
fallback               the same, and fallback_reason, from_model, to_model
shrink                 dropped_segments, new_token_budget
repair                 parse_error, repair_prompt_version, previous_output_hash
hedge_ttft, _stall     same_prompt_hash
restart, continue      previous_output_hash, continuation_point (on the first attempt of a new generation)
=====================  ======================================================================================

All but the first say which attempt they follow (``previous_request_id``) and what differs (``changed_inputs``). Before:
``edge.policy``. After: ``race``.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from edge.policy.changes import REPAIR_PROMPT_VERSION, Shrunk, repair
from edge.policy.moves import Start
from schemas.digest import ContentDigest
from schemas.events import AttemptStart

if TYPE_CHECKING:
    from edge.attempts.attempt_result import AttemptResult
    from edge.dialects import ClientRequest
    from edge.driver import Driver


class Lineage:
    """The attempts of one generation as they were asked for.

    Args:
        driver: whose attempts these are.
        shrunk: the shorter request, where there may be one.
    """

    def __init__(self, driver: "Driver", shrunk: Shrunk | None) -> None:
        self._driver = driver
        self._shrunk = shrunk
        self._asked: dict[int, tuple[Start, ClientRequest]] = {}

    def request_for(self, start: Start, results: Mapping[int, "AttemptResult"]) -> "ClientRequest":
        """What an attempt is sent: what the attempt before it was, or a change of that."""
        before = self._asked.get(start.after) if start.after is not None else None
        request = self._driver.request if before is None else before[1]
        if start.reason == "shrink" and self._shrunk is not None:
            request = self._shrunk.request
        elif start.reason == "repair" and start.after is not None:
            result = results[start.after]
            asked = repair(self._driver.dialect, request, result.of.held.text(), result.unparsable or "")
            request = asked or request
        self._asked[start.number] = (start, request)
        return request

    def announce(self, start: Start, results: Mapping[int, "AttemptResult"]) -> AttemptStart:
        """The record of an attempt whose request is known."""
        driver, request = self._driver, self._asked[start.number][1]
        target, said = driver.targets[start.target], driver.generation.identity.start
        follows = driver.generation.follows
        fields: dict[str, Any] = {} if follows is None else follows._asdict()
        if start.after is not None:
            fields = self._of_strategy(start, results)
        changed = fields.get("changed_inputs", [])
        driver.generation.changed_inputs = tuple(name for name in changed if name != "provider")
        return AttemptStart(
            provider=target.route.provider,
            model=target.route.model or request.model,
            reason=start.reason,
            priority=said.priority,
            deadline_ms=said.request_deadline_ms,
            prompt_hash=request.prompt_hash,
            idempotency_key_hash=said.idempotency_key_hash,
            **fields,
        )

    def _of_strategy(self, start: Start, results: Mapping[int, "AttemptResult"]) -> dict[str, Any]:
        driver, request, after = self._driver, self._asked[start.number][1], start.after or 0
        first, earlier = self._asked[0], self._asked[after][0]
        model, model_before = self._model(start), self._model(earlier)
        differs = (
            ("context", self._is_shrunk(request)),
            ("model", model != self._model(first[0])),
            ("prompt", request.prompt_hash != first[1].prompt_hash and not self._is_shrunk(request)),
            ("provider", start.target != first[0].target),
        )
        fields: dict[str, Any] = {
            "changed_inputs": [name for name, is_so in differs if is_so],
            "previous_request_id": f"{driver.generation.id}/{after}",
            "same_prompt_hash": request.prompt_hash == self._asked[after][1].prompt_hash,
        }
        if start.code is not None:
            fields |= {"retry_count": start.number, "retry_reason": start.code}
        if start.backoff_us is not None:
            fields["backoff_ms"] = start.backoff_us // 1000
        if start.reason == "fallback":
            fields |= {"fallback_reason": start.code, "from_model": model_before, "to_model": model}
        elif start.reason == "shrink" and self._shrunk is not None:
            fields["dropped_segments"] = self._shrunk.dropped
            fields["new_token_budget"] = self._shrunk.budget_tokens
        elif start.reason == "repair" and after in results:
            digest = ContentDigest()
            for captured in results[after].of.held.captured:
                digest.update(captured.canonical)
            fields["parse_error"] = results[after].unparsable
            fields["repair_prompt_version"] = REPAIR_PROMPT_VERSION
            fields["previous_output_hash"] = digest.output_hash()
        return fields

    def _is_shrunk(self, request: "ClientRequest") -> bool:
        return self._shrunk is not None and request.prompt_hash == self._shrunk.request.prompt_hash

    def _model(self, start: Start) -> str:
        return self._driver.targets[start.target].route.model or self._driver.request.model
