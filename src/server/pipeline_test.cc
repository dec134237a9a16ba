// What of a bulk request overlaps with what, pipeline by pipeline.
#include <gtest/gtest.h>

#include "server/raw_client.h"

namespace forebay::server {
namespace {

constexpr uint64_t kChunk = 16_KiB;
constexpr uint64_t kSize = 6 * kChunk - 5;  // six chunks; the pool of the server has sixteen

ExportOptions with(Pipeline pipeline) {
  ExportOptions o = SimServer::unmerged();
  o.pipeline = pipeline;
  return o;
}

class PipelineTest : public ::testing::Test {
 protected:
  void start(Pipeline pipeline) {
    sim_ = std::make_unique<SimServer>(test_seed(), ServerOptions{}, with(pipeline));
    client_ = sim_->client();
    file_ = create(*client_, "f");
  }

  // A write whose data is sent when the test says so, to a store that holds every call.
  void begin_write(uint64_t size = kSize) {
    data_ = pattern(1, size);
    client_->auto_pull = false;
    sim_->store->add({.op = Op::write, .action = FaultRule::Action::hold});
    call_ = client_->send(data_request(Op::write, file_, range(0, size)), data_, true);
    settle();
  }
  void answer_pulls(size_t count) {
    for (; count > 0; --count) {
      ASSERT_FALSE(client_->pulls.empty());
      client_->answer(client_->pulls.front());
      client_->pulls.pop_front();
    }
    settle();
  }
  void release() {
    sim_->store->release();
    settle();
  }
  void settle() { sim_->loop.run_for(20ms); }
  size_t asked() const { return client_->pulls.size(); }
  size_t storing() const { return sim_->store->held(); }
  void expect_written() {
    ASSERT_TRUE(call_->done());
    EXPECT_EQ(call_->reply().count, data_.size());
    sim_->store->clear();
    client_->auto_pull = true;
    EXPECT_EQ(read_back(*client_, file_, data_.size() + 1), data_);
  }

  // A read of six chunks from a store that holds call `nth`.
  void begin_read(uint64_t nth) {
    data_ = pattern(1, kSize);
    client_->call(data_request(Op::write, file_, range(0, kSize)), data_);
    sim_->store->clear();
    sim_->store->add({.op = Op::read, .nth = nth, .action = FaultRule::Action::hold});
    call_ = client_->send(data_request(Op::read, file_, range(0, kSize)));
    settle();
  }
  bool arrived(size_t chunk) const {
    const size_t at = chunk * kChunk, n = std::min(kChunk, kSize - at);
    return call_->in.compare(at, n, data_, at, n) == 0;
  }
  uint64_t reads() const { return sim_->store->calls(Op::read); }
  void expect_read() {
    release();
    ASSERT_TRUE(call_->done());
    EXPECT_EQ(call_->reply().count, kSize);
    EXPECT_EQ(call_->in, data_);
  }

  std::unique_ptr<SimServer> sim_;
  std::unique_ptr<RawClient> client_;
  OpenFile file_;
  std::string data_;
  RawClient::CallRef call_;
};

TEST_F(PipelineTest, NoneStoresWhenAllIsTransferred) {
  start(Pipeline::none);
  begin_write();
  EXPECT_EQ(asked(), 6u);
  answer_pulls(5);
  EXPECT_EQ(storing(), 0u);
  answer_pulls(1);
  EXPECT_EQ(storing(), 6u);
  release();
  expect_written();
}

TEST_F(PipelineTest, NoneGoesInRoundsThroughASmallPool) {
  start(Pipeline::none);
  begin_write(40 * kChunk);
  for (const size_t round : {16u, 16u, 8u}) {
    ASSERT_EQ(asked(), round);
    answer_pulls(round);
    EXPECT_EQ(asked(), 0u) << "nothing is transferred while it stores";
    EXPECT_EQ(storing(), round);
    release();
  }
  expect_written();
}

TEST_F(PipelineTest, SerialStoresOneAfterTheOther) {
  start(Pipeline::serial);
  begin_write();
  EXPECT_EQ(asked(), 4u);
  answer_pulls(3);
  EXPECT_EQ(storing(), 1u);
  release();
  EXPECT_EQ(storing(), 1u);
  EXPECT_EQ(asked(), 2u) << "the next is transferred meanwhile";
  while (!call_->done()) {
    answer_pulls(asked());
    ASSERT_EQ(storing(), 1u);
    release();
  }
  expect_written();
}

TEST_F(PipelineTest, ParallelStoresWhatIsThere) {
  start(Pipeline::parallel);
  begin_write();
  EXPECT_EQ(asked(), 4u);
  answer_pulls(3);
  EXPECT_EQ(storing(), 3u);
  release();
  answer_pulls(asked());
  release();
  expect_written();
}

TEST_F(PipelineTest, NoneSendsWhenAllIsRead) {
  start(Pipeline::none);
  begin_read(5);
  EXPECT_EQ(reads(), 6u);
  for (size_t i = 0; i < 6; ++i) EXPECT_FALSE(arrived(i)) << i;
  expect_read();
}

TEST_F(PipelineTest, SerialReadsOneAfterTheOther) {
  start(Pipeline::serial);
  begin_read(1);
  EXPECT_EQ(reads(), 2u);
  EXPECT_TRUE(arrived(0));
  expect_read();
}

TEST_F(PipelineTest, ParallelSendsWhatIsRead) {
  start(Pipeline::parallel);
  begin_read(1);
  EXPECT_EQ(reads(), 6u);
  for (const size_t i : {0u, 2u, 3u, 4u, 5u}) EXPECT_TRUE(arrived(i)) << i;
  EXPECT_FALSE(arrived(1));
  expect_read();
}

// A round that loses its connection stores what has landed, and goes on with what has not.
TEST_F(PipelineTest, NoneGoesOnAfterALostConnection) {
  start(Pipeline::none);
  begin_write();
  answer_pulls(2);
  client_->hang_up();
  settle();
  EXPECT_EQ(storing(), 2u);
  release();
  client_->pulls.clear();
  ASSERT_TRUE(client_->resume());
  settle();
  ASSERT_EQ(asked(), 4u);
  answer_pulls(4);
  EXPECT_EQ(storing(), 4u);
  release();
  expect_written();
}

// A client may ask for smaller pieces than the server would use.
TEST_F(PipelineTest, TheSmallerChunkCounts) {
  for (const auto& [wanted, got] :
       {std::pair(0u, 16384u), {5000u, 4096u}, {1u, 4096u}, {16384u, 16384u}, {1u << 20, 16384u}}) {
    SimServer sim(test_seed());
    RawClient c(sim.loop, sim.net, "client");
    c.hello.chunk = wanted;
    ASSERT_TRUE(c.connect());
    EXPECT_EQ(c.welcome.chunk, got);
    const OpenFile f = create(c, "f");
    const std::string data = pattern(2, 70000);
    const auto written = c.call(data_request(Op::write, f, range(0, data.size())), data);
    EXPECT_EQ(written->pulls, (data.size() - 1) / got + 1);
    EXPECT_EQ(read_back(c, f, 80000), data);
  }
}

}  // namespace
}  // namespace forebay::server
