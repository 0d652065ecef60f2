/* Gives back all that it takes. Built with AddressSanitizer, which looks at its end whether it has: by a
 * thread that traces all others.
 */
#include "common.h"

#define COUNT 1000
#define BYTES 20000

int main(void) {
    char *pieces[COUNT];
    int right = 1;
    for (int number = 0; number < COUNT; number++) {
        pieces[number] = malloc(BYTES);
        memset(pieces[number], number, BYTES);
    }
    for (int number = 0; number < COUNT; number++) {
        right &= pieces[number][BYTES / 2] == (char)number;
        free(pieces[number]);
    }
    return verdict(right);
}
