/* SPDX-License-Identifier: GPL-2.0 */
/* Modules under test, loaded and unloaded; 0 or -errno. */
#ifndef VHOST_BLK_MODULE_H
#define VHOST_BLK_MODULE_H

#include <stdbool.h>

bool module_loaded(const char *name);
/* From $PVIO_MODULES, from beside this checkout, or by modprobe. */
int load_module(const char *name);
/* What is not loaded is no error; what is in use is -EAGAIN, at once. */
int unload_module(const char *name);
/* How many hold it, or -1 if it is not loaded. */
long module_references(const char *name);

#endif /* VHOST_BLK_MODULE_H */
