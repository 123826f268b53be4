"""Programs, cases and checks that the tests of several rooms share."""
