#include <doctest/doctest.h>
#include <malloc.h>

int main(int argc, char** argv) {
    // Tests of memory fill, free and fill again what the kernel would have to clear each time.
    ::mallopt(M_MMAP_MAX, 0);
    ::mallopt(M_TRIM_THRESHOLD, -1);
    return doctest::Context(argc, argv).run();
}
