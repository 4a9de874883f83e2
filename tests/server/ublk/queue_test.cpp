// Runs a ublk queue on a real worker and volumes, with a simulated kernel.
#include "server/ublk/queue.hpp"

#include <random>

#include "tests/server/failing_allocation.hpp"
#include "tests/server/rig.hpp"
#include "tests/server/ublk/simulated_kernel.hpp"
#include "tests/test.hpp"

namespace gpunbd::server::test {
namespace {

using Op = ublk::Op;
using Kernel = SimulatedKernel;

constexpr std::uint32_t sector = 512;
constexpr std::uint16_t depth = 8;

Kernel::Request request(Op operation, std::uint64_t first, std::uint32_t sectors) {
    Kernel::Request out{
        .operation = static_cast<std::uint32_t>(operation), .sector = first, .sectors = sectors};
    if (operation == Op::read) out.payload.assign(sectors * sector, std::byte{0xee});
    return out;
}

Kernel::Request write(std::uint64_t first, std::uint32_t sectors, std::uint32_t seed) {
    Kernel::Request out = request(Op::write, first, sectors);
    std::minstd_rand random(seed + 1);
    out.payload.resize(sectors * sector);
    for (std::byte& each : out.payload) each = static_cast<std::byte>(random());
    return out;
}

// A queue on the worker of a rig. Its members are used there only.
class Bench {
 public:
    explicit Bench(const RigOptions& options = {.size = 8 * 32 * kib + 4096},
                   bool read_only = false)
        : rig(options) {
        const auto exported = std::make_shared<Export>(*rig.exports.open(""));
        exported->info.read_only = read_only;
        rig.on_worker_with([&](WorkerContext& its) {
            auto io = std::make_unique<Kernel>(depth);
            kernel_ = io.get();
            queue_ = std::make_unique<ublk::Queue>(its, std::move(io),
                                                   ublk::Queue::Options{.device = "/dev/ublkb0",
                                                                        .depth = depth,
                                                                        .max_in_flight = 64 * mib,
                                                                        .exported = exported},
                                                   [this] { ++ends_; });
            queue_->begin();
        });
    }
    ~Bench() { end(); }
    void end() {
        rig.on_worker([this] { queue_.reset(); });
    }

    template <typename Call>
    auto with_kernel(Call call) {
        return rig.on_worker([this, &call] { return call(*kernel_); });
    }
    void run_queue() {
        rig.on_worker([this] { queue_->run(); });
    }
    // Runs the queue once, in which an allocation fails. Returns false if there are fewer.
    bool run_without_memory(std::int64_t allocation) {
        return rig.on_worker([&] {
            failing_allocation::take_part();
            failing_allocation::arm(allocation);
            queue_->run();
            return failing_allocation::disarm();
        });
    }
    void pause() {
        rig.on_worker([this] { queue_->pause([this] { ++pauses_; }); });
    }
    void resume() {
        rig.on_worker([this] { queue_->resume(); });
    }
    int pauses() {
        return rig.on_worker([this] { return pauses_; });
    }
    void limit_rates(RateLimits limits) {
        rig.on_worker([&] { queue_->limit_rates(std::move(limits)); });
    }
    // Sends requests at once, with the tags from 0 on. run_queue() takes them.
    void submit(std::vector<Kernel::Request> requests) {
        with_kernel([&](Kernel& kernel) {
            for (std::uint16_t tag = 0; tag != requests.size(); ++tag) {
                kernel.send(tag, std::move(requests[tag]));
            }
        });
    }
    // The same, and returns when they may have been answered.
    void send(std::vector<Kernel::Request> requests) {
        submit(std::move(requests));
        run_queue();
        settle();
    }
    void settle() {
        rig.let_run();
        rig.settle();
    }
    // The queue runs again when there is more for it.
    bool waits() {
        return with_kernel([](Kernel& kernel) { return kernel.waited_for(); });
    }
    std::optional<std::int32_t> result(std::uint16_t tag = 0) {
        return with_kernel([tag](Kernel& kernel) { return kernel.result(tag); });
    }
    std::int32_t ask(Kernel::Request one) {
        send({std::move(one)});
        const auto answer = result();
        REQUIRE(answer);
        CHECK(waits());
        return *answer;
    }
    std::vector<std::byte> read(std::uint64_t first, std::uint32_t sectors) {
        CHECK(ask(request(Op::read, first, sectors)) ==
              static_cast<std::int32_t>(sectors * sector));
        return with_kernel([](Kernel& kernel) { return kernel.payload(0); });
    }
    int ends() {
        return rig.on_worker([this] { return ends_; });
    }

    Rig rig;

 private:
    Kernel* kernel_ = nullptr;
    std::unique_ptr<ublk::Queue> queue_;
    int ends_ = 0;
    int pauses_ = 0;
};

TEST_CASE("ublk queue: concurrent requests have the results of a model") {
    for (const std::string_view devices : {"h", "s", "hs"}) {
        for (const std::size_t longest_copy : {~std::size_t{0}, std::size_t{1000}}) {
            CAPTURE(devices);
            CAPTURE(longest_copy);
            Bench bench({.devices = devices, .size = 16 * 32 * kib + 4096});
            bench.with_kernel([&](Kernel& kernel) { kernel.longest_copy = longest_copy; });
            std::vector<std::byte> model(bench.rig.options.size);
            const auto part = static_cast<std::uint32_t>(model.size() / sector / depth);
            std::minstd_rand engine(7);
            const auto random = [&] { return static_cast<std::uint32_t>(engine()); };
            for (std::uint32_t round = 0; round != 60; ++round) {
                std::vector<Kernel::Request> requests;
                std::vector<std::vector<std::byte>> expected(depth);
                for (std::uint32_t tag = 0; tag != depth; ++tag) {
                    const std::uint32_t from = tag * part + random() % part;
                    const std::uint32_t sectors = 1 + random() % ((tag + 1) * part - from);
                    const auto begin = model.begin() + from * sector;
                    const auto end = begin + sectors * sector;
                    constexpr std::array operations{Op::read, Op::write, Op::write, Op::discard,
                                                    Op::write_zeroes};
                    const Op operation = operations[random() % operations.size()];
                    requests.push_back(operation == Op::write ? write(from, sectors, round)
                                                              : request(operation, from, sectors));
                    if (operation == Op::write_zeroes && random() % 2 == 0) {
                        requests.back().operation |= ublk::no_unmap;
                    }
                    if (operation == Op::read) {
                        expected[tag].assign(begin, end);
                    } else if (operation == Op::write) {
                        std::ranges::copy(requests.back().payload, begin);
                    } else {
                        std::fill(begin, end, std::byte{0});
                    }
                }
                const auto sent = requests;
                bench.send(std::move(requests));
                for (std::uint16_t tag = 0; tag != depth; ++tag) {
                    CAPTURE(tag);
                    const bool moves = sent[tag].operation <= 1;
                    const auto bytes = static_cast<std::int32_t>(sent[tag].sectors * sector);
                    REQUIRE(bench.result(tag) == (moves ? bytes : 0));
                    if (sent[tag].operation != 0) continue;
                    REQUIRE(bench.with_kernel(
                        [&](Kernel& kernel) { return kernel.payload(tag) == expected[tag]; }));
                }
            }
        }
    }
}

TEST_CASE("ublk queue: discarded pages are unmapped, those of NOUNMAP stay") {
    Bench bench({.devices = "h", .size = 8 * 32 * kib});
    const std::uint32_t page = 32 * kib / sector;
    CHECK(bench.ask(write(0, 8 * page, 1)) == 8 * 32 * kib);
    CHECK(bench.ask(request(Op::discard, 0, 3 * page)) == 0);
    CHECK(bench.rig.volume->mapped_bytes() == 5 * 32 * kib);
    CHECK(bench.ask(request(Op::write_zeroes, 3 * page, page)) == 0);
    CHECK(bench.rig.volume->mapped_bytes() == 4 * 32 * kib);
    Kernel::Request keeping = request(Op::write_zeroes, 4 * page, 2 * page);
    keeping.operation |= ublk::no_unmap;
    CHECK(bench.ask(keeping) == 0);
    CHECK(bench.rig.volume->mapped_bytes() == 4 * 32 * kib);
    CHECK(std::ranges::count(bench.read(4 * page, 2 * page), std::byte{0}) == 2 * 32 * kib);
    CHECK(bench.ask(request(Op::flush, 0, 0)) == 0);
}

TEST_CASE("ublk queue: unknown operations and ranges outside of the export are EIO") {
    Bench bench({.devices = "h", .size = 8 * 32 * kib});
    const std::uint64_t end = 8 * 32 * kib / sector;
    for (const auto& [operation, first, sectors] : {std::tuple{Op{9}, std::uint64_t{0}, 1U},
                                                    {Op::read, end, 1},
                                                    {Op::write, end - 1, 2},
                                                    {Op::discard, ~std::uint64_t{0} >> 9, 8},
                                                    {Op::read, std::uint64_t{1} << 55, 1}}) {
        CHECK(bench.ask(request(operation, first, sectors)) == -5);
    }
    CHECK(bench.ask(request(Op::read, end - 1, 1)) == 512);
}

TEST_CASE("ublk queue: a read-only export is only read") {
    Bench bench({.devices = "h", .size = 8 * 32 * kib}, true);
    CHECK(bench.ask(write(0, 8, 1)) == -5);
    CHECK(bench.ask(request(Op::discard, 0, 64)) == -5);
    CHECK(bench.ask(request(Op::write_zeroes, 0, 64)) == -5);
    CHECK(bench.rig.volume->mapped_bytes() == 0);
    CHECK(bench.ask(request(Op::read, 0, 8)) == 8 * sector);
    CHECK(bench.ask(request(Op::flush, 0, 0)) == 0);
}

TEST_CASE("ublk queue: failures of a device are the results of their requests") {
    SUBCASE("a copy") {
        for (const Op operation : {Op::read, Op::write}) {
            Bench bench({.devices = "s", .size = 8 * 32 * kib});
            CHECK(bench.ask(write(0, 128, 1)) == 64 * kib);
            for (std::int64_t copy = 0; copy != 4; ++copy) {
                bench.rig.script.copies_until_failure = copy;
                CHECK(bench.ask(operation == Op::read ? request(operation, 0, 128)
                                                      : write(0, 128, 2)) == -5);
            }
            CHECK(bench.ask(write(0, 128, 3)) == 64 * kib);
            CHECK(bench.read(0, 128) == write(0, 128, 3).payload);
            bench.rig.check_over();
        }
    }
    SUBCASE("zeroes") {
        Bench bench({.devices = "s", .size = 8 * 32 * kib});
        for (const Op operation : {Op::discard, Op::write_zeroes}) {
            CHECK(bench.ask(write(0, 128, 1)) == 64 * kib);
            bench.rig.script.copies_until_failure = 0;
            CHECK(bench.ask(request(operation, 1, 8)) == -5);  // a part of a page
            CHECK(bench.ask(request(operation, 1, 8)) == 0);
        }
        bench.rig.check_over();
    }
    SUBCASE("memory") {
        Bench bench({.devices = "s", .size = 8 * 32 * kib});
        bench.rig.script.allocations_until_failure = 0;
        CHECK(bench.ask(write(3, 128, 1)) == -28);
        CHECK(bench.ask(request(Op::read, 3, 128)) == 64 * kib);
    }
}

TEST_CASE("ublk queue: requests fail without memory, and later ones succeed") {
    for (const std::string_view devices : {"h", "s"}) {
        CAPTURE(devices);
        bool failed = true;
        std::int64_t allocation = 1;
        for (; failed; ++allocation) {
            CAPTURE(allocation);
            Bench bench({.devices = devices, .size = 16 * 32 * kib});
            const std::vector<Kernel::Request> sent{request(Op::read, 0, 320), write(320, 320, 2),
                                                    request(Op::discard, 640, 320)};
            bench.submit(sent);
            failed = bench.run_without_memory(allocation);
            bench.settle();
            for (std::uint16_t tag = 0; tag != sent.size(); ++tag) {
                CAPTURE(tag);
                const std::int32_t done = sent[tag].operation <= 1 ? 320 * 512 : 0;
                const auto result = bench.result(tag);
                REQUIRE(result);
                CHECK((*result == done || (failed && (*result == -5 || *result == -28))));
            }
            CHECK(bench.ask(write(512, 128, 3)) == 128 * 512);
            CHECK(bench.read(512, 128) == write(512, 128, 3).payload);
            bench.rig.check_over();
        }
        CHECK(allocation > 2);  // at least one has failed
    }
}

TEST_CASE("ublk queue: a failed request ends once, also if there is no memory for the log") {
    bool failed = true;
    for (std::int64_t allocation = 1; failed; ++allocation) {
        CAPTURE(allocation);
        Bench bench({.devices = "s", .size = 8 * 32 * kib});
        bench.rig.script.allocations_until_failure = 0;
        bench.submit({write(3, 128, 1)});
        failed = bench.run_without_memory(allocation);
        bench.settle();
        const auto result = bench.result(0);
        REQUIRE(result);
        CHECK((*result == -28 || (failed && *result == -5)));
        const auto connections = bench.rig.worker.counters().connections();
        REQUIRE(connections.size() == 1);
        CHECK(connections[0].counters->errors.value() == 1);
        bench.rig.check_over();
    }
}

TEST_CASE("ublk queue: what lies beyond the end of an export that has shrunk is refused") {
    Bench bench({.size = 8 * 32 * kib});
    const std::uint32_t last = 8 * 32 * kib / sector - 1;
    CHECK(bench.ask(write(last, 1, 1)) == sector);
    const auto volume = bench.rig.exports.open("")->volume;
    REQUIRE(volume->resize(volume->page_size()).empty());
    REQUIRE(volume->size() <= last * sector);
    CHECK(bench.ask(write(last, 1, 2)) == -28);
    CHECK(bench.ask(request(Op::write_zeroes, last, 1)) == -28);
    CHECK(bench.ask(request(Op::read, last, 1)) == -5);
    CHECK(bench.ask(write(0, 1, 3)) == sector);
    CHECK(volume->mapped_bytes() == volume->page_size());
    bench.rig.check_over();
}

TEST_CASE("ublk queue: the answers of a turn are submitted together") {
    Bench bench({.devices = "h", .size = 8 * 32 * kib});
    const auto submits = [&] {
        return bench.with_kernel([](Kernel& kernel) { return kernel.submits(); });
    };
    const std::size_t before = submits();
    bench.send(std::vector<Kernel::Request>(depth, request(Op::read, 0, 8)));
    CHECK(bench.result(depth - 1) == 8 * 512);
    CHECK(submits() == before + 1);
}

TEST_CASE("ublk queue: payload that the kernel does not copy directly passes through a buffer") {
    struct Row {
        const char* devices;
        std::uint64_t page_size;  // of large ones, a piece is longer than the buffer
    };
    for (const auto& [devices, page_size] :
         {Row{"h", 32 * kib}, Row{"h", 256 * kib}, Row{"s", 32 * kib}}) {
        CAPTURE(devices);
        CAPTURE(page_size);
        Bench bench({.devices = devices, .page_size = page_size, .size = 16 * page_size});
        const auto refuse = [&](std::size_t copies) {
            bench.with_kernel([&](Kernel& kernel) { kernel.refused_copies = copies; });
        };
        const auto refused = [&] {
            return bench.with_kernel([](Kernel& kernel) { return kernel.refused_copies; });
        };
        refuse(2);
        CHECK(bench.ask(write(1, 400, 1)) == -5);
        CHECK(refused() == 0);
        refuse(1);
        CHECK(bench.ask(write(1, 400, 2)) == 400 * 512);
        refuse(2);
        CHECK(bench.ask(request(Op::read, 1, 400)) == -5);
        refuse(1);
        CHECK(bench.read(1, 400) == write(1, 400, 2).payload);
        // It is not tried directly again.
        refuse(1);
        CHECK(bench.ask(write(1, 400, 3)) == -5);
        CHECK(refused() == 0);
        CHECK(bench.ask(write(1, 400, 3)) == 400 * 512);
        CHECK(bench.read(0, 400).size() == 400 * 512);
        bench.rig.check_over();
    }
}

TEST_CASE("ublk queue: it ends when the kernel has ended all commands") {
    Bench bench({.devices = "s", .size = 8 * 32 * kib});
    CHECK(bench.ask(write(0, 64, 1)) == 32 * kib);
    bench.rig.script.hold = true;
    bench.with_kernel([](Kernel& kernel) {
        kernel.send(2, request(Op::read, 0, 8));
        kernel.abort();
    });
    bench.run_queue();
    bench.rig.let_run();
    CHECK(bench.ends() == 0);  // one request is in flight
    bench.rig.script.hold = false;
    bench.rig.settle();
    CHECK(bench.result(2) == 8 * 512);
    bench.run_queue();
    CHECK(bench.ends() == 1);
    bench.run_queue();
    CHECK(bench.ends() == 1);
}

TEST_CASE("ublk queue: requests that arrive during a pause are answered before its end") {
    Bench bench({.devices = "h", .size = 8 * 32 * kib});
    bench.pause();
    bench.rig.let_run();
    CHECK(bench.waits());
    bench.send({request(Op::read, 0, 8)});
    CHECK(bench.waits());
    CHECK(!bench.result(0));
    bench.with_kernel([](Kernel& kernel) { kernel.abort(); });
    bench.run_queue();
    CHECK(bench.ends() == 0);
    bench.resume();
    bench.rig.let_run();
    CHECK(bench.result(0) == 8 * sector);
    bench.run_queue();
    CHECK(bench.ends() == 1);
}

TEST_CASE("ublk queue: a paused one answers requests in flight, and takes others when it resumes") {
    Bench bench({.devices = "s", .size = 8 * 32 * kib});
    CHECK(bench.ask(write(0, 64, 1)) == 32 * kib);
    bench.rig.script.hold = true;
    bench.with_kernel([](Kernel& kernel) { kernel.send(2, request(Op::read, 0, 8)); });
    bench.run_queue();
    bench.rig.on_worker([] {});
    bench.with_kernel([](Kernel& kernel) { kernel.send(3, request(Op::read, 0, 8)); });
    bench.pause();
    bench.rig.let_run();
    CHECK(bench.pauses() == 0);
    bench.rig.script.hold = false;
    bench.rig.settle();
    CHECK(bench.pauses() == 1);
    CHECK(bench.result(2) == 8 * 512);
    CHECK(!bench.result(3));
    bench.resume();
    bench.settle();
    CHECK(bench.result(3) == 8 * 512);
    CHECK(bench.ends() == 0);
    bench.pause();  // without requests in flight
    bench.rig.let_run();
    CHECK(bench.pauses() == 2);
}

TEST_CASE("ublk queue: the rates of the export hold requests back, except when it pauses") {
    Bench bench({.devices = "h", .size = 8 * 32 * kib});
    const auto now = TokenBucket::Clock::now();
    const auto bucket = std::make_shared<TokenBucket>(
        config::Rates{.bytes_per_second = {}, .iops = 1, .burst = std::chrono::seconds(3600)}, now);
    for (int i = 0; i != 7200; ++i) bucket->take(0, now);  // the next one is due in an hour
    bench.limit_rates({.of_peer = nullptr, .of_export = bucket});
    bench.send({request(Op::read, 0, 8), request(Op::read, 8, 8)});
    CHECK(!bench.result(0));
    bench.pause();
    bench.rig.let_run();
    CHECK(bench.result(0) == 8 * 512);
    CHECK(!bench.result(1));
    CHECK(bench.pauses() == 1);
    // The other one is held back in its turn, and executes when there are no rates any more.
    bench.resume();
    bench.rig.let_run();
    CHECK(!bench.result(1));
    bench.limit_rates({});
    bench.rig.let_run();
    CHECK(bench.result(1) == 8 * 512);
}

TEST_CASE("ublk queue: counted and listed like a connection") {
    Bench bench({.devices = "h", .size = 8 * 32 * kib});
    CHECK(bench.ask(write(0, 16, 1)) == 16 * 512);
    CHECK(bench.ask(request(Op::read, 0, 8)) == 8 * 512);
    CHECK(bench.ask(request(Op::read, 1 << 20, 8)) == -5);
    const auto connections = bench.rig.worker.counters().connections();
    REQUIRE(connections.size() == 1);
    CHECK(connections[0].facts->peer == "/dev/ublkb0");
    CHECK(connections[0].facts->listener == "ublk");
    CHECK(connections[0].facts->serving);
    const ConnectionCounters& counters = *connections[0].counters;
    CHECK(counters.requests.value() == 3);
    CHECK(counters.in_flight.value() == 0);
    const auto exports = bench.rig.worker.counters().exports();
    for (const RequestCounters& each : exports.at(0).counters->by_type) {
        CHECK(each.in_flight.value() == 0);
    }
    CHECK(counters.errors.value() == 1);
    CHECK(counters.written.value() == 16 * 512);
    CHECK(counters.read.value() == 8 * 512);
    bench.end();
    CHECK(bench.rig.worker.counters().connections().empty());
}

TEST_CASE("ublk queue: after the warm-up, no request allocates memory") {
    for (const std::string_view devices : {"h", "s"}) {
        Bench bench({.devices = devices, .size = mib, .provision = storage::Provision::full});
        const std::vector<Kernel::Request> requests{write(0, 256, 1), request(Op::read, 512, 256),
                                                    request(Op::discard, 1024, 256),
                                                    write(1536, 8, 1)};
        for (int i = 0; i != 20; ++i) bench.send(requests);
        bench.submit(requests);
        bench.rig.on_worker([] { failing_allocation::take_part(); });
        failing_allocation::count();
        bench.run_queue();
        bench.rig.settle();
        const std::int64_t made = failing_allocation::made();
        failing_allocation::disarm();
        CHECK(made == 0);
        CHECK(bench.result(0) == 256 * 512);
    }
}

}  // namespace
}  // namespace gpunbd::server::test
