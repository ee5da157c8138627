"""Events as bytes. The only place that renders one, or takes something out of one."""
