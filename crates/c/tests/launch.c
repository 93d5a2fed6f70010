/* Launches the kernel `scale`: `launch LOCK DEVICE` launches it from a lock, `launch PACKED DEVICE memory` from a
   packed lock in memory. The exit code is 0 if all results are right. */

#include <stdio.h>
#include <string.h>

#include "tilewright.h"

#define N 1000

static int fails(const char *what, tw_error *error)
{
    printf("%s: [%s] %s\n", what, tw_error_code(error), tw_error_message(error));
    tw_error_free(error);
    return 1;
}

/* Returns whether a launch fails with the expected code. */
static int refuses(tw_bundle *bundle, const char *kernel, const char *device, const tw_argument *arguments,
                   size_t count, const char *code)
{
    uint32_t grid[3] = {4, 1, 1};
    tw_error *error = NULL;
    if (tw_bundle_launch(bundle, kernel, device, grid, arguments, count, NULL, &error)) {
        printf("%s on %s is launched, expected %s\n", kernel, device, code);
        return 0;
    }
    int is_right = error != NULL && strcmp(tw_error_code(error), code) == 0;
    if (!is_right)
        printf("expected %s, found [%s] %s\n", code, tw_error_code(error), tw_error_message(error));
    tw_error_free(error);
    return is_right;
}

/* Opens a packed lock from memory. Clears the memory before it returns: the bundle must not use it any more. */
static tw_bundle *open_in_memory(const char *path, tw_error **error)
{
    static char bytes[1 << 20];
    FILE *file = fopen(path, "rb");
    if (file == NULL)
        return NULL;
    size_t size = fread(bytes, 1, sizeof bytes, file);
    fclose(file);
    tw_bundle *bundle = tw_bundle_from_memory(bytes, size, error);
    memset(bytes, 0, sizeof bytes);
    return bundle;
}

int main(int count, char **words)
{
    tw_error *error = NULL;
    if (count < 3 || tw_interface() != TW_INTERFACE || strlen(tw_version()) == 0)
        return 2;
    if (tw_bundle_open("no-such.lock", &error) != NULL || strcmp(tw_error_code(error), "TW0120") != 0)
        return fails("a missing lock", error);
    tw_error_free(error);
    error = NULL;
    if (tw_bundle_from_memory("no lock", 7, &error) != NULL || strcmp(tw_error_code(error), "TW0120") != 0)
        return fails("memory without a lock", error);
    tw_error_free(error);
    error = NULL;
    tw_bundle *bundle = count == 3 ? tw_bundle_open(words[1], &error) : open_in_memory(words[1], &error);
    if (bundle == NULL)
        return fails("open", error);

    static float x[N + 16], out[N + 16];
    /* The kernel was compiled for addresses that are multiples of 16. */
    float *from = x + (16 - (size_t)x % 16) % 16 / sizeof(float);
    float *to = out + (16 - (size_t)out % 16) % 16 / sizeof(float);
    for (int i = 0; i < N; i++)
        from[i] = (float)i;
    tw_argument arguments[] = {
        {"x_ptr", TW_CONST_POINTER, "fp32", {.pointer = from}, N * sizeof(float)},
        {"out_ptr", TW_POINTER, "fp32", {.pointer = to}, N * sizeof(float)},
        {"factor", TW_REAL, NULL, {.real = 2.5}, 0},
        {"n", TW_INTEGER, NULL, {.integer = N}, 0},
        {"BLOCK", TW_INTEGER, NULL, {.integer = 256}, 0},
    };
    uint32_t grid[3] = {4, 1, 1};
    for (int round = 0; round < 2; round++) {
        /* The second launch omits BLOCK: the lock has only one value of this compile-time argument. */
        memset(to, 0, N * sizeof(float));
        if (!tw_bundle_launch(bundle, "scale", words[2], grid, arguments, 5 - round, NULL, &error))
            return fails("launch", error);
        for (int i = 0; i < N; i++) {
            if (to[i] != 2.5f * (float)i) {
                printf("out[%d] is %g\n", i, to[i]);
                return 1;
            }
        }
    }

    tw_argument other = arguments[4];
    other.value.integer = 512;
    tw_argument wrong[] = {arguments[0], arguments[1], arguments[2], arguments[3], other};
    int is_right = refuses(bundle, "scale", words[2], wrong, 5, "TW0119");
    is_right &= refuses(bundle, "scale", words[2], arguments, 3, "TW0119");
    is_right &= refuses(bundle, "unknown", words[2], arguments, 5, "TW0119");
    is_right &= refuses(bundle, "scale", "tpu", arguments, 5, "TW0109");
    is_right &= refuses(bundle, NULL, words[2], arguments, 5, "TW0105");
    is_right &= refuses(NULL, "scale", words[2], arguments, 5, "TW0105");
    wrong[4] = arguments[4];
    wrong[1].bytes = 16;
    is_right &= refuses(bundle, "scale", words[2], wrong, 5, "TW0201");
    wrong[1] = arguments[1];
    wrong[1].kind = TW_CONST_POINTER;
    is_right &= refuses(bundle, "scale", words[2], wrong, 5, "TW0201");
    wrong[1] = arguments[1];
    wrong[0].type = "fp16";
    is_right &= refuses(bundle, "scale", words[2], wrong, 5, "TW0119");
    /* This launch passes no pointer for the error. */
    is_right &= !tw_bundle_launch(bundle, "unknown", words[2], grid, arguments, 5, NULL, NULL);
    tw_bundle_close(bundle);
    tw_bundle_close(NULL);
    return is_right ? 0 : 1;
}
