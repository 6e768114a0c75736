"""The attempts of a generation: calls to providers that run, race, are held back, judged and stopped.

``race`` begins, drops and ends them as ``policy/`` says. Of one: ``announcing`` (what it is sent), ``attempt`` (read to its
end), ``holding`` (not committed yet), ``judging`` with ``output_check`` and ``schema_check`` (is the answer whole?),
``stopping`` (where we ended it), ``attempt_result`` (its attempt_end). Before: ``driver``. After: ``provider/``, ``capture``.
"""
