#include "storage/devices/channels.hpp"

#include "tests/test.hpp"

namespace gpunbd::storage::test {
namespace {

class Work final : public DeferredWork {
 public:
    explicit Work(std::function<void()> what) : what_(std::move(what)) {}
    void resume() override { what_(); }

 private:
    std::function<void()> what_;
};

TEST_CASE("channels: each poll resumes one deferred transfer, once") {
    Channels channels{ChannelOptions{}};
    DeferredQueue client;
    std::vector<int> done;
    Work first([&] { done.push_back(1); });
    Work second([&] { done.push_back(2); });
    CHECK_FALSE(channels.busy());
    channels.defer(client, first);
    channels.defer(client, second);
    CHECK(channels.busy());
    channels.poll();
    CHECK(done == std::vector{1});
    CHECK(channels.busy());
    channels.poll();
    CHECK(done == std::vector{1, 2});
    CHECK_FALSE(channels.busy());
    channels.poll();
    CHECK(done == std::vector{1, 2});
}

TEST_CASE("channels: clients take turns, however many transfers one of them has deferred") {
    Channels channels{ChannelOptions{}};
    DeferredQueue many;
    DeferredQueue few;
    std::vector<int> done;
    std::vector<std::unique_ptr<Work>> all;
    for (int i = 0; i != 3; ++i) {
        all.push_back(std::make_unique<Work>([&, i] {
            done.push_back(i);
            if (i == 0) channels.defer(many, *all[0]);
        }));
        channels.defer(many, *all.back());
    }
    Work one([&] {
        done.push_back(10);
        if (done.size() < 5) channels.defer(few, one);
    });
    channels.defer(few, one);
    for (int i = 0; i != 6; ++i) channels.poll();
    CHECK(done == std::vector{0, 10, 1, 10, 2, 10});
}

TEST_CASE("channels: a destroyed transfer is not resumed") {
    Channels channels{ChannelOptions{}};
    DeferredQueue client;
    std::vector<int> done;
    auto gone = std::make_unique<Work>([&] { done.push_back(0); });
    // One transfer may end a session and so destroy another transfer.
    Work ends([&] {
        done.push_back(1);
        gone.reset();
    });
    Work last([&] { done.push_back(2); });
    channels.defer(client, ends);
    channels.defer(client, *gone);
    channels.defer(client, last);
    auto leaves = std::make_unique<DeferredQueue>();
    Work never([&] { done.push_back(3); });
    channels.defer(*leaves, never);
    leaves.reset();
    while (channels.busy()) channels.poll();
    CHECK(done == std::vector{1, 2});
}

struct Ended final : CopyOwner {
    void copy_done(Copy& copy) override { ended.push_back(&copy); }
    std::vector<const Copy*> ended;
};

// Otherwise a client that zeroes whole pages delays all others by 200 us at a time.
TEST_CASE("in-place channel: a long copy is spread over several polls") {
    InPlaceChannel channel{ChannelOptions{}};
    std::vector<std::byte> page(2 << 20, std::byte{1});
    Ended owner;
    Copy zeroes;
    Copy next;
    for (Copy* copy : {&zeroes, &next}) {
        const std::uint32_t half = 1 << 20;
        copy->prepare(Copy::Kind::zero, half, 0, page.data() + (copy == &next ? half : 0), nullptr,
                      owner);
        channel.enqueue(*copy);
    }
    channel.poll();
    CHECK(owner.ended.empty());
    CHECK(page.front() == std::byte{});
    CHECK(page[(1 << 20) - 1] == std::byte{1});
    int polls = 1;
    for (; channel.busy(); ++polls) channel.poll();
    CHECK(polls >= 8);
    CHECK(owner.ended == std::vector<const Copy*>{&zeroes, &next});
    CHECK(page == std::vector<std::byte>(page.size()));
}

}  // namespace
}  // namespace gpunbd::storage::test
