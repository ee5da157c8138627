/* The functions of this module. Where its twin in Python must look, each answers None, or what the twin says if it was
 * bound to one (`module.c`): then `self` is a tuple, the twin first. */
#ifndef SUBLUMINAL_CORE_H
#define SUBLUMINAL_CORE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

PyObject *read_call(PyObject *self, PyObject *line);
PyObject *read_reply(PyObject *self, PyObject *line);
PyObject *read_args(PyObject *self, PyObject *raw);
PyObject *quote(PyObject *self, PyObject *value);
PyObject *preview(PyObject *self, PyObject *raw);
PyObject *sha256_hex(PyObject *self, PyObject *data);
PyObject *filled(PyObject *self, PyObject *const *arguments, Py_ssize_t count);
PyObject *table_taken(PyObject *self, PyObject *const *arguments, Py_ssize_t count);
PyObject *table_changed(PyObject *self, PyObject *const *arguments, Py_ssize_t count);

static inline int is_bound(PyObject *self)
{
    return PyTuple_CheckExact(self);
}

static inline PyObject *left_to_twin(PyObject *self, PyObject *const *arguments, Py_ssize_t count)
{
    if (is_bound(self))
        return PyObject_Vectorcall(PyTuple_GET_ITEM(self, 0), arguments, (size_t)count, NULL);
    Py_INCREF(Py_None);
    return Py_None;
}

/* Without Python, so that it can be read and tried on its own. */
void prepare_credentials(void);
void prepare_digests(void);
void prepare_tables(void);
int may_hold_credential(const unsigned char *data, size_t size);

#endif
