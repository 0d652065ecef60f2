/* What the tests check by. One that fails ends the process by `END`, or by exit. */
#include <stdio.h>
#include <stdlib.h>
#include <zfold.h>

#ifndef END
#define END exit
#endif

#define CHECK(what)                                                              \
    do {                                                                         \
        if (!(what)) {                                                           \
            fprintf(stderr, "line %d: %s (%s)\n", __LINE__, #what, zfold_error()); \
            END(1);                                                              \
        }                                                                        \
    } while (0)
