/* From C: one kernel on arrays of one's own, then a model folder continues a text, and a state goes through a file. */
#include <braid/braid.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int fail(braid_error* error) {
  fprintf(stderr, "%s\n%s\n", braid_error_message(error), braid_error_fix(error));
  braid_error_free(error);
  return 1;
}

/* The gated delta rule over 3 tokens of one head, by name. */
static int run_op(braid_context* context) {
  float q[] = {1, 0, 0, 1, 1, 1}, k[] = {1, 0, 0, 1, 1, 0}, v[] = {1, 2, 3, 4, 5, 6};
  float g[] = {0, 0, 0}, beta[] = {1, 1, 1}, o[6];
  const braid_tensor inputs[] = {{"q", BRAID_F32, 4, {1, 3, 1, 2}, q},
                                 {"k", BRAID_F32, 4, {1, 3, 1, 2}, k},
                                 {"v", BRAID_F32, 4, {1, 3, 1, 2}, v},
                                 {"g", BRAID_F32, 3, {1, 3, 1}, g},
                                 {"beta", BRAID_F32, 3, {1, 3, 1}, beta}};
  braid_tensor output = {"o", BRAID_F32, 4, {1, 3, 1, 2}, o};
  const char* settings[] = {"scale=1"};
  const braid_op_options options = {sizeof options, NULL, settings, 1, 0};
  braid_error* error = NULL;
  if (braid_op_run(context, "fast_weight", &options, inputs, 5, &output, 1, &error)) return fail(error);
  printf("op: %g %g, %g %g, %g %g\n", o[0], o[1], o[2], o[3], o[4], o[5]);
  return 0;
}

int main(int argc, char** argv) {
  enum { kTokens = 40, kMost = 4096 };
  if (argc != 4) return fprintf(stderr, "usage: c_api FOLDER PROMPT STATE_FILE\n"), 2;
  braid_error* error = NULL;
  braid_context* context = braid_context_new(NULL, &error); /* all processors */
  if (!context || run_op(context)) return error ? fail(error) : 1;
  braid_model* model = braid_model_load(argv[1], NULL, context, &error);
  if (!model) return fail(error);
  braid_session* session = braid_session_new(model, context, &error);
  if (!session) return fail(error);

  int32_t tokens[kMost];
  size_t count = 0;
  switch (braid_tokenize(model, argv[2], strlen(argv[2]), 1, tokens, kMost - kTokens, &count, &error)) {
    case BRAID_OK:
      break;
    case BRAID_TOO_SMALL:
      return fprintf(stderr, "the prompt has %zu tokens, too many\n", count), 2;
    default:
      return fail(error);
  }
  if (braid_prefill(session, tokens, count, &error)) return fail(error);

  /* What the prompt left behind, kept in a file, and restored below. */
  braid_state* state = braid_state_copy(session, &error);
  if (!state || braid_state_save(state, argv[3], &error)) return fail(error);
  braid_state_free(state);

  int32_t first = -1;
  for (size_t end = count + kTokens; count < end; ++count) {
    const float* logits;
    size_t vocabulary;
    if (braid_logits(session, &logits, &vocabulary, &error) ||
        braid_sample(logits, vocabulary, NULL, tokens, count, &tokens[count], &error) ||
        braid_step(session, tokens[count], &error))
      return fail(error);
    if (first < 0) first = tokens[count];
  }
  char text[4 * kMost];
  size_t length = 0;
  if (braid_detokenize(model, tokens, count, 0, text, sizeof text, &length, &error)) return fail(error);
  printf("%.*s\n", (int)length, text);

  state = braid_state_load(model, argv[3], &error);
  if (!state || braid_state_restore(session, state, &error)) return fail(error);
  printf("restored at %lld\n", (long long)braid_position(session));
  braid_state_free(state);

  /* A mistake is a value. */
  if (braid_step(session, -5, &error) != BRAID_INVALID) return 1;
  printf("a mistake: %s; %s\n", braid_error_message(error), braid_error_fix(error));
  braid_error_free(error);
  braid_session_free(session);
  braid_model_free(model);
  braid_context_free(context);
  return first < 0;
}
