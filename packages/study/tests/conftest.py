"""What tests of several files share."""

import os

# a test is about models: no calibration of the machine may stand in
os.environ["INTARSIA_CALIBRATION"] = "0"
