#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tilewright.h"

/* Prints the calls in place of launching kernels. */
struct tw_bundle { size_t size; };
struct tw_error { const char *message; };

static tw_error refusal = {"refused"};
static tw_error *failed(tw_error **error) { *error = &refusal; return NULL; }

uint32_t tw_interface(void) { return TW_INTERFACE; }
const char *tw_error_message(const tw_error *error) { return error->message; }
void tw_error_free(tw_error *error) { (void)error; }

tw_bundle *tw_bundle_from_memory(const void *bytes, size_t size, tw_error **error)
{
    if (size % 512 != 0 || strcmp(bytes, "tilewright.lock") != 0)
        return (tw_bundle *)failed(error);
    tw_bundle *bundle = malloc(sizeof *bundle);
    bundle->size = size;
    puts("open");
    return bundle;
}

void tw_bundle_close(tw_bundle *bundle)
{
    if (bundle != NULL)
        puts("close");
    free(bundle);
}

int tw_bundle_launch(tw_bundle *bundle, const char *kernel, const char *device, const uint32_t grid[3],
                     const tw_argument *arguments, size_t count, void *stream, tw_error **error)
{
    if (bundle == NULL || strcmp(device, "tpu") == 0)
        return failed(error) != NULL;
    printf("%s %s (%u, %u, %u) stream %d", kernel, device, grid[0], grid[1], grid[2], (int)(intptr_t)stream);
    for (size_t index = 0; index < count; index++) {
        const tw_argument *one = &arguments[index];
        printf(", %s", one->name);
        if (one->kind == TW_POINTER)
            printf(" *%s %d %d", one->type, (int)(intptr_t)one->value.pointer, one->bytes > 1 << 30);
        else if (one->kind == TW_REAL)
            printf(" real %g", one->value.real);
        else
            printf(" %s %lld", one->kind == TW_BOOLEAN ? "bool" : "int", (long long)one->value.integer);
    }
    puts("");
    return 1;
}
