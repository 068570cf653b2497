/* Braid for C and for whatever calls C: load a model folder, tokenize, prefill, step, sample; keep, copy, save and load
 * what a sequence is remembered by; and run the kernels by name on the caller's memory.
 *
 *   braid_error* error = NULL;
 *   braid_context* context = braid_context_new(NULL, &error);
 *   braid_model* model = braid_model_load("folder", NULL, context, &error);
 *   braid_session* session = braid_session_new(model, context, &error);
 *   if (!session || braid_prefill(session, tokens, count, &error) != BRAID_OK) puts(braid_error_message(error));
 *
 * Errors. A function that can fail returns a status, or NULL instead of a handle. If `error` is not NULL, *error then
 * holds what happened and what to do about it, to be given to braid_error_free(); on success it is not touched. A
 * caller's mistake (a null pointer, an id outside the vocabulary, a wrong size) is such an error; it neither ends the
 * program nor throws through C, and what it was about to change has not changed. Two mistakes cannot be seen: a
 * pointer to something else, and the use of a handle after it was freed.
 *
 * Handles are freed by the function that is named after them; NULL is fine there. A session keeps its model and its
 * context alive, so the order does not matter.
 *
 * Threads. A model may be shared by any threads. A context, with the sessions on it, belongs to one call at a time:
 * threads that compute together have a context each. A call on a context that is in use is an error, not a wait.
 *
 * Structs of options begin with their size, which the caller sets to sizeof: a later version may add fields at the end,
 * which then have their default. NULL stands for all defaults; zeros in a field do, too, where nothing else is said.
 *
 * Strings are UTF-8 and end with 0, unless a length stands beside them. Results of unknown length go to a buffer of
 * `capacity` elements: *count is what there is, and if that is more, nothing is written and the status is
 * BRAID_TOO_SMALL, which leaves no error; a capacity of 0 asks for the count.
 */
#ifndef BRAID_BRAID_H_
#define BRAID_BRAID_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum braid_status {
  BRAID_OK = 0,
  BRAID_INVALID = 1,   /* an argument is wrong */
  BRAID_FAILED = 2,    /* a file cannot be read or written, or does not fit */
  BRAID_TOO_SMALL = 3, /* a buffer, see above */
  BRAID_NO_MEMORY = 4,
  BRAID_INTERNAL = 5 /* a bug of Braid's; the message says where */
} braid_status;

const char* braid_version(void); /* of the library, "0.1.0" */

/* ---- errors ---- */

typedef struct braid_error braid_error;
braid_status braid_error_status(const braid_error* error);
const char* braid_error_message(const braid_error* error); /* valid until the error is freed; "" for NULL */
const char* braid_error_fix(const braid_error* error);     /* what to do about it; may be "" */
void braid_error_free(braid_error* error);

/* ---- contexts: who computes, and how ---- */

typedef struct braid_context braid_context;
typedef struct braid_context_options {
  size_t size;
  int32_t threads;         /* 0: as many as processors */
  const char* activations; /* NULL or "auto"; "f32"; "bf16": how prompts enter products with bf16 weights */
  const char* isa;         /* no instructions above this: "base", "avx2", "avx512", "avx512dot", "amx" */
  const char* kernels;     /* "op=implementation,...": by name instead of the best; see `braid kernels` */
} braid_context_options;
braid_context* braid_context_new(const braid_context_options* options, braid_error** error);
void braid_context_free(braid_context* context);

/* ---- models ---- */

typedef struct braid_model braid_model;
typedef struct braid_load_options {
  size_t size;
  const char* weights; /* NULL: as stored; "f32", "bf16", "q8" or "q4" */
} braid_load_options;
/* A folder with config.json and model.safetensors, Braid's own or of a family that it knows. The context is used while
 * loading, not kept. */
braid_model* braid_model_load(const char* folder, const braid_load_options* options, braid_context* context,
                              braid_error** error);
void braid_model_free(braid_model* model);
int32_t braid_model_vocabulary(const braid_model* model);   /* ids are below it; 0 for NULL */
int32_t braid_model_answers(const braid_model* model);      /* logits per token */
int32_t braid_model_has_tokenizer(const braid_model* model);
/* The ids that end a text, as the folder names them. */
braid_status braid_model_end_tokens(const braid_model* model, int32_t* tokens, size_t capacity, size_t* count,
                                    braid_error** error);

/* Text to ids. special: put around it what the tokenizer has for that, e.g. a first token, and read the names of
 * special tokens in it as these; 0: plain text alone. */
braid_status braid_tokenize(const braid_model* model, const char* text, size_t length, int32_t special,
                            int32_t* tokens, size_t capacity, size_t* count, braid_error** error);
/* Ids to UTF-8, without a 0 at the end; special: with special tokens. */
braid_status braid_detokenize(const braid_model* model, const int32_t* tokens, size_t token_count, int32_t special,
                              char* text, size_t capacity, size_t* count, braid_error** error);

/* ---- sessions: a model and what it remembers of one sequence ---- */

typedef struct braid_session braid_session;
braid_session* braid_session_new(const braid_model* model, braid_context* context, braid_error** error);
void braid_session_free(braid_session* session);

/* Reads tokens, at least one; the logits are then those after the last of them. */
braid_status braid_prefill(braid_session* session, const int32_t* tokens, size_t count, braid_error** error);
/* The same for one token. */
braid_status braid_step(braid_session* session, int32_t token, braid_error** error);
/* Logits after the last token: *logits points to braid_model_answers() numbers, valid until the session's next
 * braid_prefill, braid_step or braid_session_free. NULL and 0 before the first token and after the state changed
 * otherwise. */
braid_status braid_logits(const braid_session* session, const float** logits, size_t* count, braid_error** error);
int64_t braid_position(const braid_session* session); /* tokens read; -1 for NULL */

/* From now on the last `tokens` tokens can be taken back; and back to a position, as if nothing from there on had been
 * read. */
braid_status braid_set_undo(braid_session* session, int64_t tokens, braid_error** error);
braid_status braid_rollback(braid_session* session, int64_t position, braid_error** error);

/* ---- sampling ---- */

typedef struct braid_sampling {
  size_t size;
  float temperature;        /* 0: the likeliest token */
  int32_t top_k;            /* 0: all */
  float top_p;              /* 0 or 1: all */
  float min_p;              /* 0: all */
  float repetition_penalty; /* 0 or 1: none */
  int32_t repeat_last_n;    /* tokens of the history that it looks at; 0: 64; -1: all */
  uint64_t seed;
} braid_sampling;
/* The next token from logits; options NULL: the likeliest. history: the tokens so far, for the penalty, and the draw is
 * the history_count-th of the seed; may be NULL with 0. */
braid_status braid_sample(const float* logits, size_t count, const braid_sampling* options, const int32_t* history,
                          size_t history_count, int32_t* token, braid_error** error);

/* ---- states: what a session remembers, as a value ---- */

typedef struct braid_state braid_state;
braid_state* braid_state_copy(const braid_session* session, braid_error** error); /* cheap: shared until written */
braid_status braid_state_restore(braid_session* session, const braid_state* state, braid_error** error);
braid_status braid_state_save(const braid_state* state, const char* path, braid_error** error);
/* Only of the same model, with the same weights. */
braid_state* braid_state_load(const braid_model* model, const char* path, braid_error** error);
void braid_state_free(braid_state* state);
int64_t braid_state_position(const braid_state* state); /* -1 for NULL */
size_t braid_state_bytes(const braid_state* state);     /* 0 for NULL */

/* ---- ops by name ---- */

enum { BRAID_MAX_RANK = 4 };
typedef enum braid_dtype { BRAID_F32 = 0, BRAID_I32 = 1 } braid_dtype;
typedef struct braid_tensor {
  const char* name;
  braid_dtype dtype;
  int32_t rank;
  int64_t shape[BRAID_MAX_RANK];
  void* data; /* row-major, without gaps; the caller's */
} braid_tensor;

size_t braid_op_count(void);
const char* braid_op_name(size_t index); /* NULL from the count on */
/* Its tensors, shapes, forms and settings, for people; NULL if there is no such op. Valid for ever. */
const char* braid_op_help(const char* op);

typedef struct braid_op_options {
  size_t size;
  const char* form;            /* NULL: the op's first */
  const char* const* settings; /* "name=value" */
  size_t setting_count;
  int32_t backward; /* also the gradients: then cotangents are inputs */
} braid_op_options;
/* Inputs are found by their names and not written; of the results those are given that `outputs` names. rank, shape and
 * dtype of these are filled in. Where data is not NULL, it must have room for that shape, which it must have already: a
 * first call with data NULL, which runs nothing, tells what to allocate. */
braid_status braid_op_run(braid_context* context, const char* op, const braid_op_options* options,
                          const braid_tensor* inputs, size_t input_count, braid_tensor* outputs,
                          size_t output_count, braid_error** error);

#ifdef __cplusplus
}
#endif

#endif /* BRAID_BRAID_H_ */
