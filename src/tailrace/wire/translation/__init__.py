"""What several dialects express differently: searches, citations, stop strings, and messages as deltas.

A `NativeDelta` is its own dialect's, but any decoder may emit these items and every encoder understands them:
`{"apart": _}` (the next text is another part), `{"annotation": _}`, `{"delta": {"annotations": _}}` and `{"cited": _}`
(web pages that the text rests on), `{"refusal": text}`, `{"stop_sequence": text}`, `{"reasoning_field": name}` (where
the thoughts after it were), and what signs thoughts: `{"reasoning": item}`, `{"delta": {"type": "signature_delta"}}`,
`{"start": redacted_thinking}`.
"""
