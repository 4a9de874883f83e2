// The order of services, and rounds of a poll that fail.
#include "server/daemon/service.hpp"

#include "tests/test.hpp"

namespace gpunbd::server::test {
namespace {

using Calls = std::vector<std::string>;

class RecordingService final : public Service {
 public:
    RecordingService(std::string name, Calls& calls) : name_(std::move(name)), calls_(calls) {}
    ~RecordingService() override { record("destroy"); }
    RecordingService(const RecordingService&) = delete;
    RecordingService& operator=(const RecordingService&) = delete;

    void open() override { record("open"); }
    void start() override { record("start"); }
    Commit reload(const config::Options& next, Problems& problems) override {
        if (next.threads == 1) problems.push_back(name_ + " refuses");
        if (next.threads == 2) throw std::runtime_error(name_ + " throws");
        return [this] { record("commit"); };
    }
    void drain() override { record("drain"); }
    void stop() override { record("stop"); }

 private:
    void record(const char* what) { calls_.push_back(name_ + ' ' + what); }

    const std::string name_;
    Calls& calls_;
};

TEST_CASE("services: started in order, stopped and destroyed in reverse order") {
    Calls calls;
    {
        ServiceList list;
        list.add<RecordingService>("a", calls);
        list.add<RecordingService>("b", calls);
        list.open();
        list.start();
        list.drain();
    }
    CHECK(calls == Calls{"a open", "b open", "a start", "b start", "b drain", "a drain", "b stop",
                         "a stop", "b destroy", "a destroy"});
}

TEST_CASE("services: new options take effect only if all services accept them") {
    Calls calls;
    ServiceList list;
    list.add<RecordingService>("a", calls);
    list.add<RecordingService>("b", calls);
    config::Options options;
    for (const std::uint32_t refused : {1U, 2U}) {
        options.threads = refused;
        Service::Problems problems;
        CHECK(!list.reload(options, problems));
        CHECK(problems == Service::Problems{refused == 1 ? "a refuses" : "a throws"});
    }
    options.threads = 0;
    Service::Problems problems;
    const Service::Commit commit = list.reload(options, problems);
    REQUIRE(commit);
    CHECK(problems.empty());
    CHECK(calls.empty());
    commit();
    CHECK(calls == Calls{"a commit", "b commit"});
}

TEST_CASE("poll: it continues after a round that has thrown") {
    boost::asio::io_context io;
    int rounds = 0;
    Poll poll(io, std::chrono::microseconds(1), [&] {
        if (++rounds == 2) throw std::runtime_error("no memory");
        return rounds != 4;
    });
    poll.resume();  // before start(): nothing
    io.run();
    CHECK(rounds == 0);
    poll.start();
    poll.start();
    io.restart();
    CHECK_THROWS(io.run());
    poll.resume();
    io.restart();
    io.run();
    CHECK(rounds == 4);
    poll.resume();  // after the last round: nothing
    io.restart();
    io.run();
    CHECK(rounds == 4);
}

}  // namespace
}  // namespace gpunbd::server::test
