"""What was said in a request, in the one form in which gateways write and pages read it."""
