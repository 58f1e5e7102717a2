"""What recorded HTTP statuses mean, told alike by the hot path, telemetry and pages."""

FAILED_FROM = 400
# nginx's number for a client that closed before its answer: no error of ours or of its request.
CLIENT_LEFT = 499
