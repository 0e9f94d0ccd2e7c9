// Calls a library with more arguments than registers hold, the first time and again.
#include <stdio.h>

int tito_mixed(int a, double b, const char *c, float d, long e, double f, int g, double h, int i, double j, int k,
               double l, long m, double n, double o, int p);
int tito_text(double a, const char **text);
int tito_calls(void);
const char *tito_GetErrorString(int code);
int tito_newer(int a);

static void print(const char *name, int code, const char *text) {
    printf("%s ", name);
    if (code == 0) printf("%s, ", text);
    else printf("%d, ", code);
}

static int mixed(void) {
    return tito_mixed(1, 0.5, "three", 0.25f, -5, -6.5, 7, 8.5, 9, 10.5, 11, 12.5, 1L << 40, 14.5, 15.5, 16);
}

int main(void) {
    const char *text = "";
    int first = mixed(), again = mixed();
    print("mixed", first != 0 ? first : again, "ok");
    int code = tito_text(2.5, &text);
    print("text", code, text);
    printf("calls %d, error %s, newer %d\n", tito_calls(), tito_GetErrorString(3), tito_newer(1));
}
