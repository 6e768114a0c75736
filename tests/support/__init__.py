"""Helpers of the tests: services and fakes, no tests."""
