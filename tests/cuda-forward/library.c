// The library that is stood in for: it notices when an argument does not arrive.
#include <string.h>

static int calls;

int tito_mixed(int a, double b, const char *c, float d, long e, double f, int g, double h, int i, double j, int k,
               double l, long m, double n, double o, int p);
int tito_text(double a, const char **text);
int tito_calls(void);
const char *tito_GetErrorString(int code);

int tito_mixed(int a, double b, const char *c, float d, long e, double f, int g, double h, int i, double j, int k,
               double l, long m, double n, double o, int p) {
    calls++;
    int integers = a == 1 && strcmp(c, "three") == 0 && e == -5 && g == 7 && i == 9 && k == 11 && m == 1L << 40 && p == 16;
    int floats = b == 0.5 && d == 0.25f && f == -6.5 && h == 8.5 && j == 10.5 && l == 12.5 && n == 14.5 && o == 15.5;
    return integers && floats ? 0 : 1;
}

int tito_text(double a, const char **text) {
    calls++;
    *text = a == 2.5 ? "ok" : "wrong";
    return 0;
}

int tito_calls(void) { return calls; }

const char *tito_GetErrorString(int code) { return code == 3 ? "of the library" : "wrong"; }
