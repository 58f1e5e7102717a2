/* Runs recorded steps without Python: what replay.py wrote comes from the file named first, logits go
 * to the standard output. All memory is as large as it must be, so a sanitizer sees what is beyond. */
#include "step.c"

#include <stdio.h>

enum { END, OPEN, STEP, CLOSE };

static FILE *input;

static void take_bytes(void *to, size_t bytes) {
    if (bytes && fread(to, bytes, 1, input) != 1) {
        fprintf(stderr, "replay: the file is short\n");
        exit(1);
    }
}

static int32_t take_int(void) {
    int32_t value;
    take_bytes(&value, sizeof value);
    return value;
}

/* Memory of its own for what comes next; NULL for what has no bytes. */
static void *take_block(void) {
    int32_t bytes = take_int();
    void *block = bytes ? malloc((size_t)bytes) : NULL;
    take_bytes(block, (size_t)bytes);
    return block;
}

static struct linear take_linear(void) {
    struct linear linear = {.k = take_int(), .panels = take_int(), .outputs = take_int(),
                            .bits = take_int(), .group = take_int(), .centred = take_int()};
    take_bytes(&linear.unit, sizeof linear.unit);
    linear.weights = take_block();
    linear.bias = take_block();
    return linear;
}

static void drop_linear(const struct linear *linear) {
    free((void *)linear->weights);
    free((void *)linear->bias);
}

static void take_layer(struct layer *layer) {
    layer->input_norm = take_block();
    layer->mlp_norm = take_block();
    layer->q_norm = take_block();
    layer->k_norm = take_block();
    layer->rope = take_block();
    layer->qkv = take_linear();
    layer->out = take_linear();
    layer->gate_up = take_linear();
    layer->down = take_linear();
    layer->window = take_int();
}

static void drop_layer(const struct layer *layer) {
    const float *blocks[] = {layer->input_norm, layer->mlp_norm, layer->q_norm, layer->k_norm,
                             layer->rope};
    for (int i = 0; i < 5; i++) free((void *)blocks[i]);
    drop_linear(&layer->qkv);
    drop_linear(&layer->out);
    drop_linear(&layer->gate_up);
    drop_linear(&layer->down);
}

static void take_model(struct model *model) {
    int32_t *sizes[] = {&model->hidden, &model->inner, &model->heads, &model->kv_heads,
                        &model->head_dim, &model->depth};
    for (int i = 0; i < 6; i++) *sizes[i] = take_int();
    model->blocks = take_int();
    take_bytes(&model->norm_eps, sizeof model->norm_eps);
    model->embedding = take_block();
    model->norm = take_block();
    model->head = take_linear();
    struct layer *layers = calloc((size_t)model->depth, sizeof *layers);
    for (int i = 0; i < model->depth; i++) take_layer(&layers[i]);
    model->layers = layers;
    size_t block = (size_t)model->kv_heads * 2 * BLOCK * (size_t)model->head_dim;
    model->cache = calloc((size_t)model->depth * (size_t)model->blocks * block, sizeof(bf16));
}

static void drop_model(const struct model *model) {
    for (int i = 0; i < model->depth; i++) drop_layer(&model->layers[i]);
    drop_linear(&model->head);
    free((void *)model->layers);
    free((void *)model->embedding);
    free((void *)model->norm);
    free(model->cache);
}

static void run_step(struct engine *engine, int outputs) {
    struct step step = {.rows = take_int(), .chunk_count = take_int(),
                        .sampled_count = take_int(), .threads = take_int()};
    step.tokens = take_block();
    step.tables = take_block();
    step.sampled = take_block();
    step.chunks = take_block();
    size_t count = (size_t)step.sampled_count * (size_t)outputs;
    step.logits = malloc(count * sizeof(float));
    if (sluice_step(engine, &step)) exit(2);
    fwrite(step.logits, sizeof(float), count, stdout);
    free((void *)step.tokens);
    free((void *)step.tables);
    free((void *)step.sampled);
    free((void *)step.chunks);
    free(step.logits);
}

int main(int count, char **arguments) {
    struct model model = {0};
    struct engine *engine = NULL;
    input = count > 1 ? fopen(arguments[1], "rb") : NULL;
    if (!input) return 1;
    take_model(&model);
    for (int kind; (kind = take_int()) != END;) {
        if (kind == STEP) run_step(engine, model.head.outputs);
        if (kind == CLOSE) sluice_close(engine);
        if (kind != OPEN) continue;
        int threads = take_int();
        if (!(engine = sluice_open(&model, threads, take_int()))) return 2;
    }
    drop_model(&model);
    return fclose(input);
}
