#include "storage/devices/channels.hpp"

#include <doctest/doctest.h>

#include <functional>
#include <memory>
#include <vector>

namespace gpunbd::storage::test {
namespace {

class Work final : public Deferred {
 public:
    explicit Work(std::function<void()> what) : what_(std::move(what)) {}
    void resume() override { what_(); }

 private:
    std::function<void()> what_;
};

TEST_CASE("channels: what is deferred is resumed in order, once, by the next poll") {
    Channels channels{ChannelOptions{}};
    std::vector<int> done;
    Work first([&] { done.push_back(1); });
    Work second([&] { done.push_back(2); });
    CHECK_FALSE(channels.busy());
    channels.defer(first);
    channels.defer(second);
    CHECK(channels.busy());
    channels.poll();
    CHECK(done == std::vector{1, 2});
    CHECK_FALSE(channels.busy());
    channels.poll();
    CHECK(done == std::vector{1, 2});
}

TEST_CASE("channels: what defers itself again lets the others come first") {
    Channels channels{ChannelOptions{}};
    std::vector<int> done;
    std::vector<std::unique_ptr<Work>> all;
    for (int i = 0; i != 3; ++i) {
        all.push_back(std::make_unique<Work>([&, i] {
            done.push_back(i);
            if (i != 1) channels.defer(*all[static_cast<std::size_t>(i)]);
        }));
        channels.defer(*all.back());
    }
    channels.poll();
    CHECK(done == std::vector{0, 1, 2});
    channels.poll();
    CHECK(done == std::vector{0, 1, 2, 0, 2});
    CHECK(channels.busy());
}

TEST_CASE("channels: what has gone is not resumed") {
    Channels channels{ChannelOptions{}};
    std::vector<int> done;
    auto gone = std::make_unique<Work>([&] { done.push_back(0); });
    // As when one transfer ends a session, and with it another transfer.
    Work ends([&] {
        done.push_back(1);
        gone.reset();
    });
    Work last([&] { done.push_back(2); });
    channels.defer(ends);
    channels.defer(*gone);
    channels.defer(last);
    channels.poll();
    CHECK(done == std::vector{1, 2});
    CHECK_FALSE(channels.busy());
}

}  // namespace
}  // namespace gpunbd::storage::test
