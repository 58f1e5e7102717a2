"""The hurried Celery, whose sheds end seconds after what they are for, not minutes.

Started as `celery -A tests.support.short_sheds`.
"""

from datetime import timedelta

from django.utils.module_loading import import_string

from tests.support.hurried import app as app

# Once Django is set up.
shedding = import_string("controlplane.slos.shedding")
shedding.WELL = shedding.LEAST = timedelta(seconds=4)
