/* Causal attention in plain C, float32: it reads Q, K and V, (batch, head, n, d), and causal from a
   .safetensors file, and writes the output into another.   cc -O2 -o attention attention.c -lm */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char *header, *data; /* JSON, and what comes after it */

/* Where the bytes of a tensor begin; its shape, if it is wanted. */
static void *tensor(const char *name, long *shape) {
    char *at = strstr(header, name), *dims = at ? strchr(strstr(at, "\"shape\""), '[') : NULL;
    for (int i = 0; shape && at && i < 4; i++) shape[i] = strtol(dims + 1, &dims, 10);
    return at ? data + atol(strchr(strstr(at, "\"data_offsets\""), '[') + 1) : NULL;
}

int main(int count, char **path) {
    FILE *in = count == 3 ? fopen(path[1], "rb") : NULL, *out = in ? fopen(path[2], "wb") : NULL;
    uint64_t size;
    if (!out || !fread(&size, 8, 1, in)) return fprintf(stderr, "usage: attention IN OUT\n"), 2;
    fseek(in, 0, SEEK_END);
    size_t rest = ftell(in) - 8;
    fseek(in, 8, SEEK_SET);
    header = calloc(rest + 1, 1), data = header + size;
    if (fread(header, 1, rest, in) != rest) return 2;
    if (!strstr(header, "\"F32\"")) return fprintf(stderr, "only float32\n"), 2;

    long a[4], b[4], c[4];
    float *q = tensor("\"Q\"", a), *k = tensor("\"K\"", b), *v = tensor("\"V\"", c);
    char *causal = tensor("\"causal\"", NULL), json[256];
    long n = a[2], m = b[2], d = a[3], d_v = c[3], rows = a[0] * a[1] * n;
    size = snprintf(json, sizeof json, "{\"output\":{\"dtype\":\"F32\",\"shape\":[%ld,%ld,%ld,%ld],"
                    "\"data_offsets\":[0,%ld]}}", a[0], a[1], n, d_v, rows * d_v * 4);
    fwrite(&size, 8, 1, out);
    fwrite(json, size, 1, out);
    double *s = malloc(m * sizeof *s);
    for (long row = 0; row < rows; row++) {
        long member = row / n / a[1], head = member * b[1] + row / n % a[1] / (a[1] / b[1]);
        long end = causal && *causal && row % n < m ? row % n + 1 : m;
        double top = -INFINITY, sum = 0;
        for (long j = 0; j < end; j++) {
            double dot = 0;
            for (long x = 0; x < d; x++) dot += (double)q[row * d + x] * k[(head * m + j) * d + x];
            top = fmax(top, s[j] = dot / sqrt(d));
        }
        for (long j = 0; j < end; j++) sum += s[j] = exp(s[j] - top);
        for (long x = 0; x < d_v; x++) {
            double y = 0;
            for (long j = 0; j < end; j++) y += s[j] / sum * v[(head * m + j) * d_v + x];
            fwrite(&(float){y}, 4, 1, out);
        }
    }
    return fclose(out) ? 2 : 0;
}
