"""A method of your own in one folder: what people said went wrong is told to the model at similar requests.

===============  =============================================================
``lessons``      the method: a row kind, a step, what is counted, a section of the report, a command
``test_lessons`` how it is tested
===============  =============================================================

Run it: ``python -m examples.own_method.lessons``. On the command line:
``TOOLMEM_METHODS=examples.own_method.lessons:Lessons toolmem lessons "send the invoice" --memory FOLDER``.
"""
