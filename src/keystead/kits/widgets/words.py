"""Japanese and Korean translations of the page that creates widgets, by the English text."""

# ruff: noqa: RUF001 - punctuation of these languages

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from keystead.kits.language import Language

# English: (Japanese, Korean).
_PHRASES: Final[Mapping[str, tuple[str, str]]] = {
    "Widgets": ("ウィジェット", "위젯"),
    "Skip to the content": ("本文へ移動", "본문으로 이동"),
    "MIT licence. This page loads nothing from elsewhere.": (
        "MIT ライセンス。このページは外部から何も読み込みません。",
        "MIT 라이선스. 이 페이지는 외부에서 아무것도 불러오지 않습니다.",
    ),
    "Create a widget": ("ウィジェットを作る", "위젯 만들기"),
    "Add a visit counter, a like button, a ranking, a board or a welcome card to any page. No account needed: you own "
    "it with a token that you choose.": (
        (
            "訪問カウンター、いいねボタン、ランキング、掲示板、ウェルカムカードをあなたのページに。"
            "登録は不要です。自分で決めたトークンが所有者の証になります。"
        ),
        (
            "방문 카운터, 좋아요 버튼, 랭킹, 게시판, 환영 카드를 내 페이지에 달아 보세요. "
            "가입은 필요 없습니다. 직접 정한 토큰이 소유자라는 증거가 됩니다."
        ),
    ),
    "This page needs JavaScript, which is off. You can create a widget from a shell, with the URL of your page and a "
    "token of 8 to 16 characters:": (
        (
            "このページはスクリプトでウィジェットを作りますが、スクリプトが無効になっています。"
            "シェルからでも作れます。ページのアドレスと 8〜16 文字のトークンを指定してください："
        ),
        (
            "이 페이지는 스크립트로 위젯을 만드는데, 스크립트가 꺼져 있습니다. "
            "셸에서도 만들 수 있습니다. 페이지 주소와 8~16자의 토큰을 넣으세요:"
        ),
    ),
    "Shell example: create a counter": ("シェルの例：カウンターを作る", "셸 예제: 카운터 만들기"),
    "The response contains the id of the counter. To show it as a picture, replace example-a1b2c3d4 with that id:": (
        "応答の id がカウンターの ID です。example-a1b2c3d4 をその ID に置き換えると、画像としてページに表示できます：",
        "응답의 id가 카운터의 ID입니다. example-a1b2c3d4 자리에 그 ID를 넣으면 이미지로 표시됩니다:",
    ),
    "HTML example": ("HTML の例", "HTML 예제"),
    "Like buttons are at /api/like, rankings at /api/ranking, boards at /api/bbs, welcome cards at /api/yokoso. See:": (
        "いいねは /api/like、ランキングは /api/ranking、掲示板は /api/bbs、ウェルカムカードは /api/yokoso です。参照：",
        "좋아요 버튼은 /api/like, 랭킹은 /api/ranking, 게시판은 /api/bbs, 환영 카드는 /api/yokoso에 있습니다. 참고:",
    ),
    "Choose a widget": ("何を作りますか？", "무엇을 만들까요?"),
    "Counter": ("カウンター", "카운터"),
    "Counts the visits to a page": ("ページの訪問者数", "페이지 방문 횟수"),
    "Like button": ("いいねボタン", "좋아요 버튼"),
    "One like per visitor and day": ("1人1日1回のいいね", "방문자당 하루 한 번"),
    "Ranking": ("ランキング", "랭킹"),
    "High scores of a game": ("ゲームのハイスコア", "게임의 최고 점수"),
    "Board": ("掲示板", "게시판"),
    "Messages from your visitors": ("訪問者からのメッセージ", "방문자가 남기는 글"),
    "Welcome card": ("ウェルカムカード", "환영 카드"),
    "A greeting from a lucky cat": ("招き猫からのごあいさつ", "복고양이의 인사말"),
    "Page URL": ("ページのアドレス", "페이지 주소"),
    "Owner token": ("所有者トークン", "소유자 토큰"),
    "Generate": ("自動で作る", "자동 생성"),
    "8 to 16 characters. Save it: you need it to change or delete the widget, and it cannot be recovered.": (
        "8〜16 文字。大切に保管してください。変更や削除にはこのトークンが必要で、後から確認することはできません。",
        "8~16자. 잘 보관하세요. 변경과 삭제에는 이 토큰이 필요하며, 나중에 다시 확인할 수 없습니다.",
    ),
    "Icon": ("アイコン", "아이콘"),
    "Heart": ("ハート", "하트"),
    "Star": ("星", "별"),
    "Thumb": ("サムズアップ", "엄지"),
    "Paw (peta)": ("肉球（ペタ）", "발바닥 (peta)"),
    "Title": ("タイトル", "제목"),
    "optional": ("任意", "선택"),
    "The best score is": ("一番良いスコア", "가장 좋은 점수"),
    "the highest": ("高いほど良い", "높을수록 좋음"),
    "the lowest, as in a race": ("低いほど良い（タイムなど）", "낮을수록 좋음 (기록 등)"),
    "Messages per page": ("1ページの件数", "페이지당 글 수"),
    "Visitors can choose an icon": ("訪問者がアイコンを選べる", "방문자가 아이콘을 고를 수 있음"),
    "Visitors can choose region, weather and mood": (
        "訪問者が地域・天気・気分を選べる",
        "방문자가 지역, 날씨, 기분을 고를 수 있음",
    ),
    "Message": ("メッセージ", "메시지"),
    "Up to 20 characters on a badge, 140 on a card.": (
        "バッジは20文字、カードは140文字まで。",
        "배지는 20자, 카드는 140자까지.",
    ),
    "Shown as": ("表示方法", "표시 방식"),
    "a badge": ("バッジ", "배지"),
    "a card": ("カード", "카드"),
    "From": ("名前", "이름"),
    "Create the counter": ("カウンターを作る", "카운터 만들기"),
    "Create the like button": ("いいねボタンを作る", "좋아요 버튼 만들기"),
    "Create the ranking": ("ランキングを作る", "랭킹 만들기"),
    "Create the board": ("掲示板を作る", "게시판 만들기"),
    "Create the welcome card": ("ウェルカムカードを作る", "환영 카드 만들기"),
    "Your counter is ready.": ("カウンターができました。", "카운터를 만들었습니다."),
    "Your like button is ready.": ("いいねボタンができました。", "좋아요 버튼을 만들었습니다."),
    "Your ranking is ready.": ("ランキングができました。", "랭킹을 만들었습니다."),
    "Your board is ready.": ("掲示板ができました。", "게시판을 만들었습니다."),
    "Your welcome card is ready.": ("ウェルカムカードができました。", "환영 카드를 만들었습니다."),
    "Copy this into your page, where you want it to appear:": (
        "ページの表示したい場所に、これを貼り付けてください：",
        "페이지에서 보여 줄 자리에 이것을 붙여 넣으세요:",
    ),
    "Id:": ("ID：", "ID:"),
    "Your token:": ("トークン：", "토큰:"),
    "Save it: it cannot be recovered.": (
        "大切に保管してください。後から確認することはできません。",
        "잘 보관하세요. 나중에 다시 확인할 수 없습니다.",
    ),
    "Create another one": ("もう一つ作る", "하나 더 만들기"),
    "Open an existing widget": ("作ったものを開く", "만든 위젯 열기"),
    "Widget id": ("ID", "ID"),
    "Open": ("開く", "열기"),
    "Preview": ("プレビュー", "미리 보기"),
    "Theme": ("テーマ", "테마"),
    "Shows": ("表示する数", "표시할 수"),
    "all visits": ("累計", "전체"),
    "today": ("今日", "오늘"),
    "yesterday": ("昨日", "어제"),
    "7 days": ("7日間", "7일"),
    "30 days": ("30日間", "30일"),
    "Digits": ("桁数", "자릿수"),
    "as needed": ("自動", "자동"),
    "{count} or more": ("{count}桁以上", "{count}자리 이상"),
    "Lines": ("行数", "줄 수"),
    "Language": ("表示言語", "표시 언어"),
    "Add it to your page": ("ページに貼る", "페이지에 넣기"),
    "After you create it, its id replaces example-a1b2c3d4.": (
        "作成すると、example-a1b2c3d4 の部分が実際の ID になります。",
        "만들고 나면 example-a1b2c3d4 자리에 실제 ID가 들어갑니다.",
    ),
    "Picture": ("画像", "이미지"),
    "Shell": ("シェル", "셸"),
    "The live widget. One script per page is enough for all its widgets.": (
        "動くウィジェット。スクリプトは1ページに1回だけ書けば、すべてのウィジェットに使えます。",
        "실시간 위젯. 스크립트는 한 페이지에 한 번만 쓰면 모든 위젯에 적용됩니다.",
    ),
    "For pages without scripts: a picture that is drawn for each request.": (
        "スクリプトが使えないページ用。見るたびに描き直される画像です。",
        "스크립트를 쓸 수 없는 페이지용. 볼 때마다 새로 그려지는 이미지입니다.",
    ),
    "For a README: a badge that links to your page.": (
        "README 用。あなたのページへのリンク付きバッジです。",
        "README용. 내 페이지로 이어지는 배지입니다.",
    ),
    "From a shell, or from any program.": ("シェルやプログラムから使う場合。", "셸이나 프로그램에서 쓸 때."),
    "Copy": ("コピー", "복사"),
    "Copied": ("コピーしました", "복사됨"),
    "Selected: copy it with the keyboard": (
        "選択しました。キーボードでコピーしてください",
        "선택했습니다. 키보드로 복사하세요",
    ),
    "Owner settings": ("所有者メニュー", "소유자 메뉴"),
    "These actions need your token. Widget:": (
        "トークンを持つあなただけができること：",
        "토큰을 가진 나만 할 수 있는 일:",
    ),
    "It stays on this page, and is not stored.": (
        "このページの中だけで使われ、保存されません。",
        "이 페이지 안에서만 쓰이고 저장되지 않습니다.",
    ),
    "Set": ("設定", "설정"),
    "Save": ("保存", "저장"),
    "Remove": ("削除", "삭제"),
    "Total": ("累計", "전체"),
    "Likes": ("いいね", "좋아요"),
    "Name": ("名前", "이름"),
    "Score": ("スコア", "점수"),
    "Remove a name": ("名前を削除", "이름 삭제"),
    "Remove a message": ("投稿を削除", "글 삭제"),
    "Discord, Slack or your own": ("Discord・Slack・独自", "Discord, Slack 또는 직접 만든 것"),
    "Clear all entries": ("すべて消去", "모두 비우기"),
    "Delete it": ("削除する", "삭제하기"),
    "No, keep it": ("いいえ、残します", "아니요, 남겨 둡니다"),
    "counter": ("カウンター", "카운터"),
    "like button": ("いいねボタン", "좋아요 버튼"),
    "ranking": ("ランキング", "랭킹"),
    "board": ("掲示板", "게시판"),
    "welcome card": ("ウェルカムカード", "환영 카드"),
    "Visits": ("訪問者数", "방문자 수"),
    "Welcome": ("ようこそ", "환영합니다"),
    "Welcome!": ("ようこそ！", "환영합니다!"),
    "High scores": ("ハイスコア", "최고 점수"),
    "Guestbook": ("ゲストブック", "방명록"),
    "Found you through the webring, and stayed for the music. Greetings from Oslo!": (
        "ウェブリングから来ました。音楽が素敵で長居してしまいました。オスロより！",
        "웹링을 타고 왔다가 음악이 좋아서 머물렀어요. 오슬로에서 인사드려요!",
    ),
    "First!": ("一番乗り！", "1등!"),
    "Live: {id}": ("公開中：{id}", "사용 중: {id}"),
    "a sample, until you create yours": ("作成するまではサンプルです", "만들기 전까지는 예시입니다"),
    "{id} is deleted. This is a sample.": (
        "{id} を削除しました。サンプル表示に戻りました。",
        "{id}을(를) 삭제했습니다. 다시 예시를 보여 줍니다.",
    ),
    "Too many requests. Try again in {seconds} seconds.": (
        "回数が多すぎます。{seconds}秒後にもう一度お試しください。",
        "요청이 너무 많습니다. {seconds}초 후에 다시 시도해 주세요.",
    ),
    "You are offline. Try again when the connection is back.": (
        "オフラインです。接続が戻ってからもう一度お試しください。",
        "오프라인 상태입니다. 연결된 후 다시 시도해 주세요.",
    ),
    "The server cannot be reached. Try again in a moment.": (
        "サーバーに接続できません。しばらくしてからもう一度お試しください。",
        "서버에 연결할 수 없습니다. 잠시 후 다시 시도해 주세요.",
    ),
    "Enter the URL of your page, such as https://example.com/.": (
        "どのページに置きますか？ https://example.com/ のようなアドレスを入力してください。",
        "어느 페이지에 넣을까요? https://example.com/ 같은 주소를 입력하세요.",
    ),
    "The URL must start with https://, as in https://example.com/.": (
        "アドレスは https://example.com/ のように https:// で始めてください。",
        "주소는 https://example.com/처럼 https://로 시작해야 합니다.",
    ),
    "The token must have 8 to 16 characters. Choose one, or generate one.": (
        "トークンは 8〜16 文字です。入力するか、自動で作ってください。",
        "토큰은 8~16자입니다. 직접 정하거나 자동으로 생성하세요.",
    ),
    "This page already has a {kind}, with another token. Enter the token that it was created with.": (
        "このページにはすでに{kind}がありますが、トークンが違います。作成時のトークンを入力してください。",
        "이 페이지에는 이미 {kind}이(가) 있지만 토큰이 다릅니다. 만들 때 쓴 토큰을 입력하세요.",
    ),
    "Enter the id, such as example-a1b2c3d4.": (
        "example-a1b2c3d4 のような ID を入力してください。",
        "example-a1b2c3d4 같은 ID를 입력하세요.",
    ),
    "There is no {kind} with this id. Check the id, and the kind above.": (
        "この ID の{kind}はありません。ID と上の種類を確認してください。",
        "이 ID의 {kind}이(가) 없습니다. ID와 위의 종류를 확인하세요.",
    ),
    "no messages on this page": ("このページに投稿はありません", "이 페이지에 글이 없습니다"),
    "Enter your token above first.": (
        "先に上の欄にトークンを入力してください。",
        "먼저 위에 토큰을 입력하세요.",
    ),
    "Done.": ("完了しました。", "완료했습니다."),
    "Done. Events are signed with {secret}, which is shown only now.": (
        "完了しました。通知は {secret} で署名されます。この値は今だけ表示されます。",
        "완료했습니다. 알림은 {secret}(으)로 서명됩니다. 이 값은 지금만 보여 줍니다.",
    ),
    "This value is not valid here.": ("この欄には使えない値です。", "여기에 맞지 않는 값입니다."),
    "Fill this in first.": ("先に入力してください。", "먼저 입력해 주세요."),
    "Delete all entries of this {kind}? This cannot be undone.": (
        "{kind}の内容をすべて消去しますか？ 元には戻せません。",
        "{kind}의 내용을 모두 지울까요? 되돌릴 수 없습니다.",
    ),
    "Yes, clear it": ("はい、消去します", "네, 지웁니다"),
    "Delete this {kind} and all its data? This cannot be undone.": (
        "この{kind}を内容ごと削除しますか？ 元には戻せません。",
        "이 {kind}을(를) 내용과 함께 삭제할까요? 되돌릴 수 없습니다.",
    ),
    "Yes, delete it": ("はい、削除します", "네, 삭제합니다"),
}
_COLUMNS: Final[Mapping[Language, int]] = {"ja": 0, "ko": 1}


def phrases(language: Language) -> dict[str, str]:
    """All phrases in a language, by the English text; empty for English."""
    if language not in _COLUMNS:
        return {}
    return {english: translations[_COLUMNS[language]] for english, translations in _PHRASES.items()}


def translate(language: Language, phrase: str, **values: object) -> str:
    """A phrase in a language, with values filled in. Raises KeyError for an unknown phrase."""
    translations = _PHRASES[phrase]
    text = translations[_COLUMNS[language]] if language in _COLUMNS else phrase
    return text.format(**values) if values else text
