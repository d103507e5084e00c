"""Tools: functions with schemas, tools of strangers, and the scopes that offer them."""
