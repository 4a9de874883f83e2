// Pages of cuda:0 move to host memory and back while a client reads and verifies them, and are
// copied when volumes share them. Prints how long it takes. GPUNBD_MIGRATION_GIB is the amount that
// moves, 4 if it is not set.
#include <random>

#include "storage/devices/cuda/cuda_device.hpp"
#include "storage/devices/cuda/cuda_driver.hpp"
#include "storage/devices/host/host_device.hpp"
#include "storage/migration/migrator.hpp"
#include "tests/test.hpp"

namespace {

using namespace gpunbd::storage;
using Clock = std::chrono::steady_clock;

constexpr std::uint64_t gib = 1 << 30;
constexpr std::uint32_t piece = 4096;       // bytes that the client reads at a time
constexpr std::uint32_t written = 1 << 20;  // bytes, at a time
constexpr ChannelOptions channel_options{.pinned = 16 << 20};

// Differs between pages and between places in a page.
std::uint64_t expected(std::uint64_t page, std::uint64_t offset) {
    return (page + 1) * 0x9e3779b97f4a7c15 ^ offset;
}

// Copies in the calling thread, one at a time.
class Client final : private CopyOwner {
 public:
    explicit Client(const std::vector<Device*>& devices) : channels_(channel_options) {
        for (Device* const device : devices) channels_.open(*device);
    }

    void write_page(Volume& volume, std::uint64_t page) {
        PageRef ref;
        REQUIRE(volume.map(page, ref) == Status::ok);
        Channel& channel = channels_.to(ref.device());
        for (std::uint64_t at = 0; at != volume.page_size(); at += written) {
            std::size_t held = 0;
            std::byte* const memory = channel.write_staging().take(written, held);
            REQUIRE(memory != nullptr);
            auto* const words = reinterpret_cast<std::uint64_t*>(memory);
            for (std::uint64_t i = 0; i != written / 8; ++i) words[i] = expected(page, at + i * 8);
            REQUIRE(run(channel, Copy::Kind::write, ref.address() + at, nullptr, memory, written));
            channel.write_staging().give_back(memory, written, held);
        }
    }

    bool check(Volume& volume, std::uint64_t page, std::uint64_t at) {
        const PageRef ref = volume.find(page);
        if (ref.hole()) return false;
        Channel& channel = channels_.to(ref.device());
        if (ref.device().sends_in_place()) return is_right(ref.cpu() + at, page, at);
        std::size_t held = 0;
        std::byte* const memory = channel.read_staging().take(piece, held);
        std::byte* const cpu = ref.cpu() == nullptr ? nullptr : ref.cpu() + at;
        const bool right = run(channel, Copy::Kind::read, ref.address() + at, cpu, memory, piece) &&
                           is_right(memory, page, at);
        channel.read_staging().give_back(memory, piece, held);
        return right;
    }

 private:
    static bool is_right(const std::byte* data, std::uint64_t page, std::uint64_t at) {
        for (std::uint64_t i = 0; i != piece; i += 8) {
            std::uint64_t word = 0;
            std::memcpy(&word, data + i, sizeof word);
            if (word != expected(page, at + i)) return false;
        }
        return true;
    }
    bool run(Channel& channel, Copy::Kind kind, std::uint64_t address, std::byte* cpu,
             std::byte* staging, std::uint32_t length) {
        copy_.prepare(kind, length, address, cpu, staging, *this);
        ended_ = false;
        channel.enqueue(copy_);
        while (!ended_) channel.poll();
        return copy_.status == Status::ok;
    }
    void copy_done(Copy&) override { ended_ = true; }

    Channels channels_;
    Copy copy_;
    bool ended_ = false;
};

// Reads random pieces until it is stopped.
class Reader {
 public:
    Reader(Volume& volume, std::uint64_t pages)
        : thread_([&volume, pages, this] {
              Client client(volume.devices());
              std::mt19937_64 random(1);
              while (!stop_) {
                  const std::uint64_t page = random() % pages;
                  const std::uint64_t at = random() % (volume.page_size() / piece) * piece;
                  const auto begin = Clock::now();
                  if (!client.check(volume, page, at)) ++wrong_;
                  latencies_.push_back(Clock::now() - begin);
              }
          }) {}

    // Returns how many pieces were wrong.
    std::uint64_t stop(const char* phase) {
        stop_ = true;
        thread_.join();
        std::ranges::sort(latencies_);
        const auto us = [&](std::size_t index) {
            return std::chrono::duration<double, std::micro>(latencies_[index]).count();
        };
        const std::size_t count = latencies_.size();
        std::printf("  reads of 4 KiB %s: %zu, p50 %.1f us, p99 %.1f us, longest %.0f us\n", phase,
                    count, us(count / 2), us(count - 1 - count / 100), us(count - 1));
        return wrong_;
    }

 private:
    std::vector<Clock::duration> latencies_;
    std::atomic<bool> stop_{false};
    std::uint64_t wrong_ = 0;
    std::thread thread_;
};

TEST_CASE("pages of a GPU leave for host memory and return below a reading client") {
    const char* const setting = std::getenv("GPUNBD_MIGRATION_GIB");
    const std::uint64_t bytes = (setting == nullptr ? 4 : std::stoull(setting)) * gib;
    const auto gpu = cuda::open_cuda_device(0, 0, {});
    const auto host = open_host_device(1, {});
    gpu->calibrate();
    SlabBudget budget;
    auto made = Volume::create({.size = bytes}, {gpu.get()}, {}, {},
                               {{.home = 0, .device = host.get(), .budget = &budget}});
    REQUIRE(std::holds_alternative<std::unique_ptr<Volume>>(made));
    const std::shared_ptr<Volume> volume = std::get<std::unique_ptr<Volume>>(std::move(made));
    const std::uint64_t pages = bytes / volume->page_size();
    {
        Client client(volume->devices());
        for (std::uint64_t page = 0; page != pages; ++page) client.write_page(*volume, page);
    }
    {
        Migrator migrator(*gpu, [&] { return Migrator::Volumes{volume}; },
                          {.channels = channel_options});
        migrator.start();
        const auto migrate = [&](bool away) {
            std::promise<Migration> done;
            const auto end = [&](const Migration& out) { done.set_value(out); };
            if (away) {
                migrator.reclaim(bytes, end);
            } else {
                migrator.release(end);
            }
            return done.get_future().get();
        };
        {
            Reader alone(*volume, pages);
            std::this_thread::sleep_for(std::chrono::seconds(1));
            CHECK(alone.stop("before") == 0);
        }
        for (const bool away : {true, false, true, false}) {
            const std::uint64_t free_before = gpu->available();
            Reader reader(*volume, pages);
            const Migration out = migrate(away);
            CHECK(reader.stop("meanwhile") == 0);
            const double seconds = std::chrono::duration<double>(out.duration).count();
            std::printf("%s: %.1f GiB in %.2f s, %.1f GiB/s, %u threads\n", away ? "away" : "back",
                        static_cast<double>(bytes) / gib, seconds,
                        static_cast<double>(bytes) / gib / seconds, MoverPool::default_threads());
            CHECK(out.error.empty());
            CHECK(out.failed == 0);
            CHECK(volume->memory()[away ? 1 : 0].mapped == bytes);
            if (away) {
                CHECK(gpu->budget().used() == 0);
                CHECK(gpu->available() >= free_before + bytes / 100 * 95);
            } else {
                CHECK(budget.used() == 0);
            }
        }
    }
    Client client(volume->devices());
    std::uint64_t wrong = 0;
    for (std::uint64_t page = 0; page != pages; ++page) {
        for (std::uint64_t at = 0; at != volume->page_size(); at += piece) {
            if (!client.check(*volume, page, at)) ++wrong;
        }
    }
    CHECK(wrong == 0);
}

// Mapped slabs, plain ones, and ones that the driver may move.
TEST_CASE("pages that volumes share are copied on the GPU") {
    constexpr std::uint64_t bytes = gib / 2;
    const DeviceOptions settings[] = {{}, {.mapped = 0}, {.mapped = 0, .revocable = 4 * gib}};
    for (const DeviceOptions& options : settings) {
        const auto gpu = cuda::open_cuda_device(0, 0, options);
        auto made = Volume::create({.size = bytes}, {gpu.get()});
        REQUIRE(std::holds_alternative<std::unique_ptr<Volume>>(made));
        Volume& volume = *std::get<std::unique_ptr<Volume>>(made);
        const std::uint64_t pages = bytes / volume.page_size();
        Client client({gpu.get()});
        const auto write_first = [&](Volume& to) {
            const auto begin = Clock::now();
            for (std::uint64_t page = 0; page != pages; ++page) {
                PageRef ref;
                REQUIRE(to.map(page, ref) == Status::ok);
            }
            return std::chrono::duration<double>(Clock::now() - begin).count();
        };
        const double thin = write_first(volume);
        for (std::uint64_t page = 0; page != pages; ++page) client.write_page(volume, page);
        auto cloned = volume.clone("clone");
        REQUIRE(std::holds_alternative<std::unique_ptr<Volume>>(cloned));
        Volume& clone = *std::get<std::unique_ptr<Volume>>(cloned);
        const double shared = write_first(clone);
        std::printf("first access to %s memory: thin %.1f GiB/s, shared %.1f GiB/s\n",
                    options.revocable != 0 ? "revocable"
                    : options.mapped       ? "plain"
                                           : "mapped",
                    0.5 / thin, 0.5 / shared);
        CHECK(clone.contents().own == bytes);
        std::uint64_t wrong = 0;
        for (std::uint64_t page = 0; page != pages; ++page) {
            const PageRef a = volume.find(page);
            const PageRef b = clone.find(page);
            if (a.address() == b.address()) ++wrong;
            for (std::uint64_t at = 0; at < volume.page_size(); at += 64 * piece) {
                if (!client.check(clone, page, at) || !client.check(volume, page, at)) ++wrong;
            }
        }
        CHECK(wrong == 0);
    }
}

}  // namespace

int main(int argc, char** argv) {
    std::string why_none;
    if (cuda::cuda_device_count(why_none) == 0) {
        std::fprintf(stderr, "skipped: %s\n", why_none.c_str());
        return std::getenv("GPUNBD_REQUIRE_GPU") != nullptr ? 1 : 77;
    }
    return doctest::Context(argc, argv).run();
}
