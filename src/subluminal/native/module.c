/* subluminal.native._core: what is done in C where it was built. Each function has its twin in Python. */
#include "core.h"

static PyObject *credential(PyObject *module, PyObject *data)
{
    (void)module;
    if (!PyBytes_CheckExact(data))
        Py_RETURN_TRUE;
    return PyBool_FromLong(
        may_hold_credential((const unsigned char *)PyBytes_AS_STRING(data), (size_t)PyBytes_GET_SIZE(data)));
}

static PyObject *bound(PyObject *module, PyObject *arguments);

static PyMethodDef functions[] = {
    {"bound", bound, METH_VARARGS, NULL},
    {"read_call", read_call, METH_O, NULL},
    {"read_reply", read_reply, METH_O, NULL},
    {"read_args", read_args, METH_O, NULL},
    {"quote", quote, METH_O, NULL},
    {"preview", preview, METH_O, NULL},
    {"sha256_hex", sha256_hex, METH_O, NULL},
    {"filled", (PyCFunction)(void (*)(void))filled, METH_FASTCALL, NULL},
    {"table_taken", (PyCFunction)(void (*)(void))table_taken, METH_FASTCALL, NULL},
    {"table_changed", (PyCFunction)(void (*)(void))table_changed, METH_FASTCALL, NULL},
    {"may_hold_credential", credential, METH_O, NULL},
    {NULL, NULL, 0, NULL},
};

/* bound(name, twin, ...): the function of that name, which leaves to `twin` what it is not sure of. What follows is
 * what it makes its result of. */
static PyObject *bound(PyObject *module, PyObject *arguments)
{
    (void)module;
    Py_ssize_t count = PyTuple_GET_SIZE(arguments);
    const char *name = count < 2 ? NULL : PyUnicode_AsUTF8(PyTuple_GET_ITEM(arguments, 0));
    for (PyMethodDef *function = functions; name != NULL && function->ml_name != NULL; function++) {
        if (strcmp(function->ml_name, name) != 0)
            continue;
        PyObject *self = PyTuple_GetSlice(arguments, 1, count);
        PyObject *made = self == NULL ? NULL : PyCFunction_NewEx(function, self, NULL);
        Py_XDECREF(self);
        return made;
    }
    if (!PyErr_Occurred())
        PyErr_SetString(PyExc_TypeError, "bound(name of a function, its twin, ...)");
    return NULL;
}

static int prepare(PyObject *module)
{
    prepare_credentials();
    prepare_digests();
    prepare_tables();
    /* Of the sources that this was made of: the loader takes no other. */
    return PyModule_AddStringConstant(module, "SOURCES", SUB_SOURCES);
}

static PyModuleDef_Slot slots[] = {
    {Py_mod_exec, prepare},
#ifdef Py_mod_multiple_interpreters
    {Py_mod_multiple_interpreters, Py_MOD_PER_INTERPRETER_GIL_SUPPORTED},
#endif
    {0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_core", NULL, 0, functions, slots, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__core(void)
{
    return PyModuleDef_Init(&definition);
}
