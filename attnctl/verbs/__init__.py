"""The verbs: what people do with a trace, each with its view beside it."""
