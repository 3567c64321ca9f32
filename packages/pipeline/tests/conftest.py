"""What tests of several files share."""

import os

# a test is about passes, and some replace parts of these: no plan of another test or of an earlier run may stand in
os.environ["INTARSIA_WARM_START"] = "0"
os.environ["INTARSIA_CALIBRATION"] = "0"  # nor a calibration of this machine
