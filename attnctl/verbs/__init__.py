"""What people do with a trace: each verb with its view beside it."""
