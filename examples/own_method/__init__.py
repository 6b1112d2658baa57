"""A method of your own in one folder: what people said went wrong is told to the model at similar requests.

===============  =============================================================
``lessons``      the method: a row kind, a step, what is counted, a section of the report
``test_lessons`` how it is tested
===============  =============================================================

Run it: ``python -m examples.own_method.lessons``. Its section in the report of a memory in a folder:
``TOOLMEM_METHODS=examples.own_method.lessons:Lessons toolmem report --memory FOLDER``.
"""
