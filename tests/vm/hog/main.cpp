// Allocates more memory than the machine has, and repeatedly checks and fills it, so that pages are
// swapped out and in. usage: memory_hog MEGABYTES ROUNDS
#include <sys/mman.h>

#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <span>

namespace {

constexpr std::size_t megabyte = 1'000'000;
constexpr std::size_t words_per_page = 512;

using Page = std::array<std::uint64_t, words_per_page>;

// The value of a word after a round. It differs for each page, word and round.
std::uint64_t word_of(std::size_t page, std::size_t word, std::uint64_t round) {
    constexpr std::uint64_t odd = 0x9e37'79b9'7f4a'7c15;
    return (page * words_per_page + word + 1) * odd + round;
}

void fill(Page& page, std::size_t number, std::uint64_t round) {
    for (std::size_t i = 0; i != page.size(); ++i) page[i] = word_of(number, i, round);
}

bool holds(const Page& page, std::size_t number, std::uint64_t round) {
    for (std::size_t i = 0; i != page.size(); ++i) {
        if (page[i] != word_of(number, i, round)) return false;
    }
    return true;
}

// Returns false if a page does not contain the data last written to it. Alternates the direction,
// because the pages used last are still in memory: this limits swapping to the excess.
bool check_and_fill(std::span<Page> pages, std::uint64_t round) {
    for (std::size_t n = 0; n != pages.size(); ++n) {
        const std::size_t i = round % 2 == 0 ? n : pages.size() - 1 - n;
        if (round != 0 && !holds(pages[i], i, round - 1)) {
            std::printf("page %zu is wrong in round %llu\n", i,
                        static_cast<unsigned long long>(round));
            return false;
        }
        fill(pages[i], i, round);
    }
    return true;
}

}  // namespace

int main(int argc, char** argv) {
    if (argc != 3) return 2;
    const std::size_t count = std::strtoull(argv[1], nullptr, 10) * megabyte / sizeof(Page);
    const std::uint64_t rounds = std::strtoull(argv[2], nullptr, 10);
    void* const memory = ::mmap(nullptr, count * sizeof(Page), PROT_READ | PROT_WRITE,
                                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) {
        std::perror("mmap");
        return 1;
    }
    const std::span<Page> pages(static_cast<Page*>(memory), count);
    for (std::uint64_t round = 0; round != rounds; ++round) {
        if (!check_and_fill(pages, round)) return 1;
    }
    return 0;
}
