"""What model APIs mean: tool calls in answers, their results in requests, and how a call is refused. No I/O."""
