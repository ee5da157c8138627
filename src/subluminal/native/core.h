/* The functions of this module. Each answers None (or says "perhaps") where its twin in Python must look. */
#ifndef SUBLUMINAL_CORE_H
#define SUBLUMINAL_CORE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

PyObject *read_call(PyObject *module, PyObject *line);
PyObject *read_reply(PyObject *module, PyObject *line);
PyObject *read_args(PyObject *module, PyObject *raw);
PyObject *quote(PyObject *module, PyObject *value);

/* Without Python, so that it can be read and tried on its own. */
void prepare_credentials(void);
int may_hold_credential(const unsigned char *data, size_t size);

#endif
