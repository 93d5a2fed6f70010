/* Launches the kernels of a lock, which `tilewright lock` writes. No Python is needed.

       tw_error *error = NULL;
       tw_bundle *bundle = tw_bundle_open("serve.lock", &error);
       tw_argument arguments[] = {
           {"x_ptr", TW_CONST_POINTER, "fp32", {.pointer = x}, n * sizeof(float)},
           {"out_ptr", TW_POINTER, "fp32", {.pointer = out}, n * sizeof(float)},
           {"n", TW_INTEGER, NULL, {.integer = n}, 0},
           {"BLOCK", TW_INTEGER, NULL, {.integer = 1024}, 0},
       };
       uint32_t grid[3] = {(n + 1023) / 1024, 1, 1};
       if (!tw_bundle_launch(bundle, "scale", "cpu", grid, arguments, 4, NULL, &error)) {
           fprintf(stderr, "%s\n", tw_error_message(error));
           tw_error_free(error);
       }
       tw_bundle_close(bundle);

   Each function may be called by any thread. No function exits the process, prints, or changes the
   current CUDA context of the calling thread. A function that fails returns NULL or 0, and sets
   `*error` unless `error` is NULL; the caller frees the error. Texts are UTF-8. */

#ifndef TILEWRIGHT_H
#define TILEWRIGHT_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The version of this interface: a library with the same number is compatible. */
#define TW_INTERFACE 1

typedef struct tw_bundle tw_bundle;
typedef struct tw_error tw_error;

typedef enum tw_kind {
    TW_INTEGER = 0,       /* value.integer; the kernel's parameter decides its width */
    TW_REAL = 1,          /* value.real */
    TW_BOOLEAN = 2,       /* value.integer: 0 or 1 */
    TW_POINTER = 3,       /* value.pointer: memory that the kernel may read and write */
    TW_CONST_POINTER = 4, /* value.pointer: memory that the kernel only reads */
    TW_TEXT = 5           /* value.text: a compile-time string */
} tw_kind;

/* An argument of a launch, with the name of its parameter. A launch may omit a compile-time argument
   if all kernels of the lock that fit the other arguments have the same value of this argument. */
typedef struct tw_argument {
    const char *name;
    tw_kind kind;
    const char *type; /* of a pointer's elements: "fp32", "bf16", "i64", "u8"; for other kinds NULL */
    union {
        int64_t integer;
        double real;
        void *pointer; /* host memory for the CPU and the simulator, otherwise GPU memory */
        const char *text;
    } value;
    uint64_t bytes; /* of the memory of a pointer; accesses outside of it are errors, except on a GPU */
} tw_argument;

/* The version of the library, such as "0.1.0". */
const char *tw_version(void);

/* Returns TW_INTERFACE of the library. */
uint32_t tw_interface(void);

/* Reads a lock, or a packed lock (`tilewright lock pack`). The artifacts of a lock, in the folder
   NAME.artifacts beside NAME.lock, are read when a kernel is first launched. */
tw_bundle *tw_bundle_open(const char *path, tw_error **error);

/* Reads a packed lock from memory, such as an array in the program. The memory is not used after
   the function has returned.

       if (tw_interface() != TW_INTERFACE) {
           fprintf(stderr, "tilewright %s does not fit the header\n", tw_version());
           return 1;
       }
       tw_error *error = NULL;
       tw_bundle *bundle = tw_bundle_from_memory(serve_tar, serve_tar_size, &error);
       if (bundle == NULL && strcmp(tw_error_code(error), "TW0120") == 0)
           fprintf(stderr, "the array has no lock: %s\n", tw_error_message(error));
       tw_error_free(error);
       tw_bundle_close(bundle); */
tw_bundle *tw_bundle_from_memory(const void *bytes, size_t size, tw_error **error);

/* Frees a bundle (a lock that is open) and unloads its kernels. No launch of the bundle may be
   running; NULL is allowed. */
void tw_bundle_close(tw_bundle *bundle);

/* Makes the machine code of all kernels for "cpu", or loads the code of all kernels for a GPU.
   Otherwise, the first launch of each kernel does that. Returns 1, or 0 after an error.

       tw_bundle *bundle = tw_bundle_open("serve.lock", NULL);
       int is_ready = tw_bundle_prepare(bundle, "cpu", NULL);
       tw_bundle_close(bundle); */
int tw_bundle_prepare(tw_bundle *bundle, const char *device, tw_error **error);

/* Launches a kernel. `device` is "cpu", "cuda:0" or a simulated GPU such as "sim:sm_90". `stream` is a
   CUstream, or NULL for the default stream; other devices ignore it. On the CPU and in the simulator
   the function returns when all programs have ended. Returns 1, or 0 after an error. */
int tw_bundle_launch(tw_bundle *bundle, const char *kernel, const char *device, const uint32_t grid[3],
                     const tw_argument *arguments, size_t count, void *stream, tw_error **error);

/* The code of an error, such as "TW0119"; "" if it has none. Valid until the error is freed. */
const char *tw_error_code(const tw_error *error);

/* The message of an error, of several lines. Valid until the error is freed. */
const char *tw_error_message(const tw_error *error);

/* Frees an error; NULL is allowed. */
void tw_error_free(tw_error *error);

#ifdef __cplusplus
}
#endif

#endif
