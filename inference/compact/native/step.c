/* One engine step of a dense decoder on a CPU: token ids in, logits out.
 *
 * Python owns weights, cache and block tables (see run/native.py) and calls `sluice_step` for each
 * step; this file owns threads and scratch memory. All rows of a layer store their keys and values
 * before any row attends, so sequences may share blocks that the same step fills.
 */
#include "attention.h"
#include "model.h"
#include "team.h"

#include <sys/mman.h>

/* Rows that one task of a simple phase takes, and that one task of a large product should. */
#define PHASE_ROWS 16
#define PRODUCT_ROWS 96
#define HUGE_PAGE (2 << 20)
/* Tasks per thread, so that one that is delayed leaves its share to the others. */
#define SHARES 4

/* Where a row stands: its position, its block, and whether it is its chunk's last. */
struct place {
    int32_t position, block, last;
};

struct engine {
    struct model model;
    struct team *team;
    struct attention_scratch *attention[LANES_MAX];
    int32_t capacity;
    /* Memory of all that follows, for `capacity` rows. */
    void *scratch;
    float *x, *x_sampled, *qkv;
    operand *normed, *queries, *attended, *inner;
    struct quantized quantized;
    struct place *places;
    struct tile_of_queries *tiles;
};

/* What the phases of a step share. */
struct pass {
    struct engine *engine;
    const struct step *step;
    const struct layer *layer;
    const struct linear *linear;
    const operand *in;
    const float *norm;
    struct attention attention;
    float *x;
    int64_t layer_blocks;
    int32_t rows, tiles, heads_per_task, gathers;
};

/* The next `bytes` of the scratch memory, in whole cache lines. */
static void *carve(char **at, int64_t bytes) {
    char *start = *at;
    *at = start + (bytes + LINE - 1) / LINE * LINE;
    return start;
}

/* Scratch for `rows` rows; 0 if memory is short. Doubled, so that a growing batch does not ask for
 * it again and again; in huge pages, which make a prefill 5 % faster. */
static int hold_scratch(struct engine *e, int64_t rows) {
    if (rows <= e->capacity) return 1;
    if (rows < 2 * e->capacity) rows = 2 * e->capacity;
    const struct model *m = &e->model;
    const int64_t queries = (int64_t)m->heads * m->head_dim, item = sizeof(operand);
    const int64_t qkv = (int64_t)m->layers[0].qkv.panels * PANEL;
    int64_t widest = m->inner > m->hidden ? m->inner : m->hidden;
    if (widest < queries) widest = queries;
    /* First only counted, then laid out. */
    char *at = NULL;
    for (int pass = 0; pass < 2; pass++) {
        e->x = carve(&at, rows * m->hidden * 4);
        e->x_sampled = carve(&at, rows * m->hidden * 4);
        e->qkv = carve(&at, rows * qkv * 4);
        e->normed = carve(&at, rows * m->hidden * item);
        e->queries = carve(&at, rows * queries * item);
        e->attended = carve(&at, rows * queries * item);
        e->inner = carve(&at, rows * m->inner * item);
        e->quantized.codes = carve(&at, rows * widest);
        e->quantized.scales = carve(&at, rows * (widest / INPUTS) * (int64_t)sizeof *e->quantized.scales);
        e->places = carve(&at, rows * (int64_t)sizeof *e->places);
        e->tiles = carve(&at, rows * (int64_t)sizeof *e->tiles);
        if (pass) break;
        const size_t size = ((uintptr_t)at + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE;
        free(e->scratch);
        e->capacity = 0;
        e->scratch = at = aligned_alloc(HUGE_PAGE, size);
        if (!at) return 0;
        madvise(at, size, MADV_HUGEPAGE);
    }
    e->capacity = (int32_t)rows;
    return 1;
}

static void run_rows(struct pass *pass, task_fn fn) {
    team_run(pass->engine->team, (pass->rows + PHASE_ROWS - 1) / PHASE_ROWS, fn, pass);
}

INLINE int rows_end(const struct pass *pass, int task) {
    int end = (task + 1) * PHASE_ROWS;
    return end < pass->rows ? end : pass->rows;
}

static void embed_task(void *job, int task, int lane) {
    const struct pass *pass = job;
    const struct model *m = &pass->engine->model;
    (void)lane;
    for (int row = task * PHASE_ROWS; row < rows_end(pass, task); row++) {
        const bf16 *from = m->embedding + (int64_t)pass->step->tokens[row] * m->hidden;
        float *to = pass->x + (int64_t)row * m->hidden;
        for (int i = 0; i < m->hidden; i += LANES) store(to + i, widen(from + i));
    }
}

/* 1 / root mean square of `n` values. */
static float scale_of(const float *x, int n, float eps) {
    vec squares = set1(0);
    for (int i = 0; i < n; i += LANES) {
        vec part = load(x + i);
        squares = fma_of(part, part, squares);
    }
    return 1 / sqrtf(sum_of(squares) / (float)n + eps);
}

static void norm_task(void *job, int task, int lane) {
    const struct pass *pass = job;
    const struct model *m = &pass->engine->model;
    (void)lane;
    for (int row = task * PHASE_ROWS; row < rows_end(pass, task); row++) {
        const float *x = pass->x + (int64_t)row * m->hidden;
        operand *out = pass->engine->normed + (int64_t)row * m->hidden;
        vec scale = set1(scale_of(x, m->hidden, m->norm_eps));
        for (int i = 0; i < m->hidden; i += LANES)
            put(out + i, load(x + i) * scale * load(pass->norm + i));
    }
}

/* A query or key head: normed where the model does so, turned, times `factor`. */
static void turn_head(float *head, const struct model *m, const float *norm, const float *rope,
                      float factor) {
    const int half = m->head_dim / 2;
    if (norm) {
        vec scale = set1(scale_of(head, m->head_dim, m->norm_eps));
        for (int d = 0; d < m->head_dim; d += LANES)
            store(head + d, load(head + d) * scale * load(norm + d));
    }
    /* Half a head may end in the middle of a vector. */
    for (int d = 0; d < half; d += LANES) {
        vec first = load_first(head + d, half - d), second = load_first(head + half + d, half - d);
        if (rope) {
            vec cosine = load_first(rope + d, half - d);
            vec sine = load_first(rope + 3 * half + d, half - d);
            vec turned = fma_of(-second, sine, first * cosine);
            second = fma_of(first, sine, second * cosine);
            first = turned;
        }
        store_first(head + d, first * set1(factor), half - d);
        store_first(head + half + d, second * set1(factor), half - d);
    }
}

static void store_task(void *job, int task, int lane) {
    const struct pass *pass = job;
    const struct engine *e = pass->engine;
    const struct model *m = &e->model;
    const struct layer *layer = pass->layer;
    const int D = m->head_dim;
    /* Scores come out in powers of two. */
    const float factor = 1.44269504f / sqrtf((float)D);
    (void)lane;
    for (int row = task * PHASE_ROWS; row < rows_end(pass, task); row++) {
        struct place place = e->places[row];
        const float *rope = layer->rope ? layer->rope + (int64_t)place.position * 2 * D : NULL;
        float *head = e->qkv + (int64_t)row * layer->qkv.panels * PANEL;
        operand *query = e->queries + (int64_t)row * m->heads * D;
        for (int h = 0; h < m->heads; h++, head += D, query += D) {
            turn_head(head, m, layer->q_norm, rope, factor);
            for (int d = 0; d < D; d += LANES) put(query + d, load(head + d));
        }
        int64_t block = pass->layer_blocks + place.block;
        int64_t size = block_bytes(D, m->coded_cache);
        char *to = m->cache + block * m->kv_heads * size;
        for (int h = 0; h < m->kv_heads; h++, head += D, to += size) {
            turn_head(head, m, layer->k_norm, rope, 1);
            (m->coded_cache ? store_codes : store_pairs)(
                to, head, head + m->kv_heads * D, D, place.position % BLOCK, place.last);
        }
    }
}

static void attend_task(void *job, int task, int lane) {
    const struct pass *pass = job;
    const struct engine *e = pass->engine;
    const struct model *m = &e->model;
    const int tasks_per_tile = m->kv_heads / pass->heads_per_task;
    const struct tile_of_queries *tile = &e->tiles[task / tasks_per_tile];
    const int first = task % tasks_per_tile * pass->heads_per_task;
    for (int head = first; head < first + pass->heads_per_task; head++)
        attend(e->attention[lane], &pass->attention, tile, head);
    if (pass->gathers && !first)
        memcpy(e->x_sampled + (int64_t)tile->out_row * m->hidden,
               e->x + (int64_t)tile->row * m->hidden, (size_t)tile->count * m->hidden * sizeof(float));
}

static void quantize_task(void *job, int task, int lane) {
    const struct pass *pass = job;
    (void)lane;
    for (int row = task * PHASE_ROWS; row < rows_end(pass, task); row++)
        quantize_row(&pass->engine->quantized, pass->linear, pass->in, row);
}

static void run_product(struct pass *pass, const struct linear *linear, const operand *in, void *out,
                        int64_t out_stride, enum finish finish) {
    struct team *team = pass->engine->team;
    int wanted = team->width == 1 ? 1 : SHARES * team->width;
    int row_parts = (pass->rows + PRODUCT_ROWS - 1) / PRODUCT_ROWS;
    int panel_parts = (wanted + row_parts - 1) / row_parts;
    struct product product = {
        .linear = linear, .in = in, .out = out, .in_stride = linear->k, .out_stride = out_stride,
        .rows = pass->rows, .row_parts = row_parts, .finish = finish,
        .panel_parts = panel_parts < linear->panels ? panel_parts : linear->panels,
        .quantized = &pass->engine->quantized,
        .compute = linear->bits ? rows_by_quantized : rows_by_panels,
        .tile_rows = linear->bits ? TILE_ROWS : DENSE_ROWS,
    };
    if (linear->bits) {
        pass->linear = linear;
        pass->in = in;
        run_rows(pass, quantize_task);
    }
    team_run(team, product.row_parts * product.panel_parts, product_task, &product);
}

/* Tiles of the queries whose outputs count: all rows, in the last layer only the sampled ones. */
static void tile_chunk(struct pass *pass, const struct chunk *chunk, int row, int count, int out) {
    struct engine *e = pass->engine;
    int queries = TILE_QUERIES / (e->model.heads / e->model.kv_heads);
    for (int done = 0; done < count; done += queries)
        e->tiles[pass->tiles++] = (struct tile_of_queries){
            .table = pass->step->tables + chunk->table,
            .row = row + done,
            .count = count - done < queries ? count - done : queries,
            .position = chunk->start + row - chunk->row + done,
            .out_row = out + done,
        };
}

static void tile_all(struct pass *pass) {
    pass->tiles = 0;
    for (int i = 0; i < pass->step->chunk_count; i++) {
        const struct chunk *chunk = &pass->step->chunks[i];
        tile_chunk(pass, chunk, chunk->row, chunk->count, chunk->row);
    }
}

/* `sampled` rises, as do the chunks' rows; a run of sampled rows within a chunk is one tile. */
static void tile_sampled(struct pass *pass) {
    const struct step *step = pass->step;
    pass->tiles = 0;
    for (int first = 0, i = 0; first < step->sampled_count;) {
        while (step->sampled[first] >= step->chunks[i].row + step->chunks[i].count) i++;
        int next = first + 1;
        while (next < step->sampled_count && step->sampled[next] == step->sampled[next - 1] + 1 &&
               step->sampled[next] < step->chunks[i].row + step->chunks[i].count)
            next++;
        tile_chunk(pass, &step->chunks[i], step->sampled[first], next - first, first);
        first = next;
    }
}

static void run_attention(struct pass *pass) {
    struct engine *e = pass->engine;
    const struct model *m = &e->model;
    int64_t size = m->kv_heads * block_bytes(m->head_dim, m->coded_cache);
    pass->attention = (struct attention){
        .queries = e->queries, .out = e->attended, .blocks = m->cache + pass->layer_blocks * size,
        .coded = m->coded_cache, .heads = m->heads, .kv_heads = m->kv_heads, .head_dim = m->head_dim,
        .window = pass->layer->window,
    };
    pass->heads_per_task = pass->tiles < SHARES * e->team->width ? 1 : m->kv_heads;
    team_run(e->team, pass->tiles * (m->kv_heads / pass->heads_per_task), attend_task, pass);
}

static void run_layer(struct pass *pass, int index) {
    struct engine *e = pass->engine;
    const struct model *m = &e->model;
    const struct layer *layer = &m->layers[index];
    pass->layer = layer;
    pass->layer_blocks = index * m->blocks;
    pass->norm = layer->input_norm;
    run_rows(pass, norm_task);
    run_product(pass, &layer->qkv, e->normed, e->qkv, layer->qkv.panels * PANEL, STORE);
    run_rows(pass, store_task);
    if (index == m->depth - 1) {
        pass->gathers = 1;
        tile_sampled(pass);
    }
    run_attention(pass);
    if (pass->gathers) {
        pass->x = e->x_sampled;
        pass->rows = pass->step->sampled_count;
        if (!pass->rows) return;
    }
    run_product(pass, &layer->out, e->attended, pass->x, m->hidden, ADD);
    pass->norm = layer->mlp_norm;
    run_rows(pass, norm_task);
    run_product(pass, &layer->gate_up, e->normed, e->inner, m->inner, GATE);
    run_product(pass, &layer->down, e->inner, pass->x, m->hidden, ADD);
}

static void place_rows(struct engine *e, const struct step *step) {
    for (int i = 0; i < step->chunk_count; i++) {
        const struct chunk *chunk = &step->chunks[i];
        for (int n = 0; n < chunk->count; n++) {
            int position = chunk->start + n;
            int block = step->tables[chunk->table + position / BLOCK];
            e->places[chunk->row + n] = (struct place){position, block, n == chunk->count - 1};
        }
    }
}

/* Compute one step; -1 if memory for its rows is short. One caller at a time. */
int sluice_step(struct engine *e, struct step *step) {
    int64_t started_ns = now_ns(CLOCK_MONOTONIC), busy_since_ns = now_ns(CLOCK_THREAD_CPUTIME_ID);
    if (!hold_scratch(e, step->rows)) return -1;
    int width = step->threads < e->team->lanes ? step->threads : e->team->lanes;
    atomic_store(&e->team->width, width);
    e->team->stall_ns = 0;
    struct pass pass = {.engine = e, .step = step, .x = e->x, .rows = step->rows};
    place_rows(e, step);
    run_rows(&pass, embed_task);
    tile_all(&pass);
    for (int index = 0; index < e->model.depth && pass.rows; index++) run_layer(&pass, index);
    if (pass.rows) {
        pass.norm = e->model.norm;
        run_rows(&pass, norm_task);
        run_product(&pass, &e->model.head, e->normed, step->logits, e->model.head.outputs, STORE);
    }
    step->step_ns = now_ns(CLOCK_MONOTONIC) - started_ns;
    int64_t aside_ns = step->step_ns - (now_ns(CLOCK_THREAD_CPUTIME_ID) - busy_since_ns);
    step->lost_ns = aside_ns > e->team->stall_ns ? aside_ns : e->team->stall_ns;
    return 0;
}

void sluice_close(struct engine *e) {
    team_close(e->team);
    for (int lane = 0; lane < LANES_MAX; lane++) free(e->attention[lane]);
    free(e->scratch);
    free(e);
}

/* An engine over a model whose memory the caller keeps; NULL if memory or threads are short. */
struct engine *sluice_open(const struct model *model, int threads, int64_t spin_ns) {
    struct engine *e = calloc(1, sizeof *e);
    struct team *team = team_open(threads, spin_ns);
    if (!e || !team) {
        free(e);
        if (team) team_close(team);
        return NULL;
    }
    e->model = *model;
    e->team = team;
    for (int lane = 0; lane < team->lanes; lane++)
        if (!(e->attention[lane] = aligned_alloc(LINE, sizeof *e->attention[lane]))) {
            sluice_close(e);
            return NULL;
        }
    return e;
}
