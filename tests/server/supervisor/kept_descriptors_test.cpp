#include "server/supervisor/kept_descriptors.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>

#include "tests/test.hpp"

namespace gpunbd::server::test {
namespace {

using Kept = KeptDescriptors::Answer;

OwnedFd some_memory() { return OwnedFd(::memfd_create("kept", MFD_CLOEXEC)); }

bool is_open(int fd) { return ::fcntl(fd, F_GETFD) >= 0; }

TEST_CASE("kept descriptors: closed if there is no room, and when they are removed") {
    KeptDescriptors kept(2);
    OwnedFd first = some_memory();
    OwnedFd second = some_memory();
    OwnedFd third = some_memory();
    const int numbers[] = {first.get(), second.get(), third.get()};
    CHECK(kept.keep("a", std::move(first)) == Kept::kept);
    CHECK(kept.keep("a", std::move(second)) == Kept::kept);
    CHECK(kept.keep("b", std::move(third)) == Kept::full);
    CHECK(is_open(numbers[0]));
    CHECK(is_open(numbers[1]));
    CHECK(kept.remove("b") == 0);
    CHECK(kept.joined_names() == "a:a");
    CHECK(kept.remove("a") == 2);
    CHECK_FALSE(is_open(numbers[0]));
    CHECK_FALSE(is_open(numbers[1]));
    CHECK(kept.size() == 0);
    CHECK(kept.joined_names().empty());
}

TEST_CASE("kept descriptors: their names fit into one variable, and removals make room") {
    KeptDescriptors kept(10'000);
    const std::string name(255, 'x');
    std::size_t count = 0;
    while (kept.keep(name, some_memory()) == Kept::kept) ++count;
    CHECK(count == max_all_names / (name.size() + 1));
    CHECK(kept.joined_names().size() <= max_all_names);
    CHECK(kept.keep(name, some_memory()) == Kept::names_full);
    kept.remove(name);
    CHECK(kept.keep(name, some_memory()) == Kept::kept);
}

bool is_mapped(int fd) {
    struct stat file {};
    REQUIRE(::fstat(fd, &file) == 0);
    const std::string inode = ' ' + std::to_string(file.st_ino) + ' ';
    std::ifstream maps("/proc/self/maps");
    for (std::string line; std::getline(maps, line);) {
        if (line.find("/memfd:held") != line.npos && line.find(inode) != line.npos) return true;
    }
    return false;
}

TEST_CASE("kept descriptors: memory is held, if requested, as long as it is kept") {
    for (const bool hold : {false, true}) {
        CAPTURE(hold);
        KeptDescriptors kept(10, hold);
        OwnedFd memory(::memfd_create("held", MFD_CLOEXEC));
        REQUIRE(::ftruncate(memory.get(), 8192) == 0);
        const OwnedFd same(::fcntl(memory.get(), F_DUPFD_CLOEXEC, 0));
        CHECK(kept.keep("a", std::move(memory)) == Kept::kept);
        CHECK(is_mapped(same.get()) == hold);
        // Descriptors without memory, or still empty, are kept as usual.
        CHECK(kept.keep("b", OwnedFd(::open("/dev/null", O_RDWR | O_CLOEXEC))) == Kept::kept);
        CHECK(kept.keep("b", some_memory()) == Kept::kept);
        kept.remove("b");
        CHECK(is_mapped(same.get()) == hold);
        kept.remove("a");
        CHECK_FALSE(is_mapped(same.get()));
    }
}

TEST_CASE("kept descriptors: memory that cannot be held is rejected") {
    KeptDescriptors kept(10, true);
    OwnedFd memory(::memfd_create("held", MFD_CLOEXEC));
    constexpr std::int64_t all_addresses = std::int64_t{1} << 47;
    REQUIRE(::ftruncate(memory.get(), all_addresses) == 0);
    CHECK(kept.keep("a", std::move(memory)) == Kept::not_held);
    CHECK(kept.size() == 0);
}

// In a child process: hands over descriptors with these numbers, kept in that order.
std::string places_of(std::initializer_list<int> numbers) {
    int ends[2];
    REQUIRE(::pipe(ends) == 0);
    const pid_t child = ::fork();
    if (child == 0) {
        const int copy = ::fcntl(ends[1], F_DUPFD, 200);
        KeptDescriptors kept(10);
        const int high = ::fcntl(copy, F_DUPFD_CLOEXEC, 250);
        ::close_range(3, 199, 0);
        for (const int number : numbers) {
            const int made = ::fcntl(some_memory().get(), F_DUPFD_CLOEXEC, 100);
            const std::string name = std::to_string(number);
            if (::write(made, name.data(), name.size()) < 0) ::_exit(1);
            ::dup3(made, number, O_CLOEXEC);
            ::close(made);
        }
        for (const int number : numbers) kept.keep(std::to_string(number), OwnedFd(number));
        if (!kept.hand_over()) ::_exit(2);
        std::string out = kept.joined_names() + " ";
        for (int place = 3; place != 3 + static_cast<int>(numbers.size()); ++place) {
            char text[8]{};
            if (::pread(place, text, sizeof text - 1, 0) < 0) ::_exit(3);
            out += std::string(text) + (::fcntl(place, F_GETFD) == 0 ? ";" : "!");
        }
        if (::write(high, out.data(), out.size()) < 0) ::_exit(4);
        ::_exit(0);
    }
    ::close(ends[1]);
    char text[256]{};
    const ssize_t length = ::read(ends[0], text, sizeof text);
    ::close(ends[0]);
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    REQUIRE(status == 0);
    return {text, static_cast<std::size_t>(length)};
}

TEST_CASE("kept descriptors: the next server finds each under its name, for any original numbers") {
    CHECK(places_of({3, 4, 5}) == "3:4:5 3;4;5;");
    CHECK(places_of({5, 4, 3}) == "3:4:5 3;4;5;");
    CHECK(places_of({9, 4, 50}) == "4:9:50 4;9;50;");
    CHECK(places_of({4, 5, 6, 7}) == "4:5:6:7 4;5;6;7;");
    CHECK(places_of({60}) == "60 60;");
}

}  // namespace
}  // namespace gpunbd::server::test
